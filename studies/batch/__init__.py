# SPDX-License-Identifier: Apache-2.0
"""Batch jobs on nodes with GPUs: first come first served, with remote GPUs (RQ), and with migration (MRQ).

Sources: P. Markthub, A. Nomura, S. Matsuoka, *Using rCUDA to Reduce GPU Resource-assignment Fragmentation Caused by Job
Scheduler*, PDCAT 2014 (RQ), and their *MRQ* paper of 2016, which adds mrCUDA. Below, "2014" and "2016" are these two.

models   execution times, as formulas         jobs        synthetic jobs, drawn from random variables
queues   the queue disciplines                tsubame     a year of jobs like those of TSUBAME2.5
cluster  what is free on the nodes            simulation  one run
"""
