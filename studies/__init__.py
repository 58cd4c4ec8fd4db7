"""What papers claim, put to the test: `./dev bench sim` runs the recipes. Not part of what is installed.

recipes  one for each paper: what it says, beside what was measured   claims  one statement   report  the table
batch    batch queues over GPUs of a cluster, FCFS, RQ and MRQ        hpc     Slurm, and jobs that grow and shrink
openb    a trace of a production cluster, and schedulers for it
"""
