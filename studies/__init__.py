# SPDX-License-Identifier: Apache-2.0
"""Simulations that reproduce published results, with models of other schedulers. They are not installed.

`./dev bench sim` runs all recipes and prints what the papers claim beside what was measured.

recipes  one for each paper: its experiments, its claims, and whether they hold
claims   one published claim               report  the HTML page of all claims
batch    batch queues on a cluster with GPUs: FCFS, RQ and MRQ
hpc      Slurm with remote GPUs, and malleable jobs
openb    the trace of a production cluster, and schedulers for it
ngs      programs of VMs on GPUs that are shared, and divided by MIG
points   measurements that are kept, so that an interrupted study goes on

The clock, the charts and GPGPUMS's pool and policies come from `gsaas`, which imports nothing from here.
"""
