"""Benchmarks: each measures GSaaS and what it is compared with, in the same run. `./dev bench` lists them."""
