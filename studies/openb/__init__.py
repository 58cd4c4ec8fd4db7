# SPDX-License-Identifier: Apache-2.0
"""GPU sharing on a real trace: how much is allocated with tasks tied to one node, and with GPUs from anywhere.

The trace is Alibaba's cluster-trace-gpu-v2023, called openb: 1,213 nodes with 6,212 GPUs, and the tasks that arrived.
Method and published results: Q. Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent*, USENIX ATC 2023, and the simulator that its authors published with it. Tasks arrive
one after the other and never end; a task that fits nowhere is rejected, and the next one is tried. GPUs are counted in
thousandths.

trace          nodes, tasks and published results, from traces/    sizes       the two units of shares
arrivals       random orders of tasks                              local       runs with tasks tied to nodes
cluster        free resources of the nodes                         cloudified  runs with GPUs from anywhere
schedulers     the published schedulers                            repacked    the upper bound
fragmentation  the measure that one of them minimises
"""
