"""GPU sharing on a real trace: what is allocated when tasks are tied to a node, and when their GPUs are not.

The trace is Alibaba's cluster-trace-gpu-v2023, called openb: 1,213 nodes with 6,212 GPUs, and the tasks that arrived.
Method and published results: Q. Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent*, USENIX ATC 2023, and the simulator that its authors published with it. Tasks arrive
one after the other and stay; who finds no place is turned away, and the next one is tried. GPUs are counted in
thousandths.
"""
