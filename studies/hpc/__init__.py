# SPDX-License-Identifier: Apache-2.0
"""A cluster under Slurm with remote GPUs, and malleable jobs.

Source: S. Iserte, *High-throughput Computation through Efficient Resource Management*, PhD thesis, Universitat Jaume I,
2018: chapter 4 (remote GPUs), chapters 6 and 7 (malleable jobs).

applications  the applications of chapter 4, and its job sets
slurm         chapter 4
malleable     chapter 7
dmr           chapter 6: the rules and workloads, for the simulation of chapter 7
"""
