"""Experiments that others published, ready to run: one module each, with a function `run` that returns its claims."""
