"""Benchmarks: what GSaaS costs, each beside what it is compared with, measured in one run."""
