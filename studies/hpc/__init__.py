"""A cluster under Slurm with remote GPUs, and jobs that grow and shrink.

Source: S. Iserte, *High-throughput Computation through Efficient Resource Management*, PhD thesis, Universitat Jaume I,
2018: chapter 4 (remote GPUs), chapters 6 and 7 (malleable jobs).
"""
