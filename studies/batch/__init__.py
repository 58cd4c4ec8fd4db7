"""Batch jobs on nodes with GPUs: first come first served, with remote GPUs (RQ), and with their migration (MRQ).

Sources: P. Markthub, A. Nomura, S. Matsuoka, *Using rCUDA to Reduce GPU Resource-assignment Fragmentation Caused by Job
Scheduler*, PDCAT 2014 (RQ), and their *MRQ* paper of 2016, which adds mrCUDA.
"""
