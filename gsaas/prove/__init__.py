# SPDX-License-Identifier: Apache-2.0
"""The acceptance test of GPU hosts, which an operator runs before tenants come: `gsaas-manage prove`.

verdicts  what the measured values mean: pure       report    the table and the JSON document: pure
gpu_host  measures on a GPU host                    path      measures from a consumer's host to a GPU
limits    measures how far a program gets beyond its share of a device
program   the CUDA program; needs nothing but Python, so that it can be sent to any host
clients   programs that compute through middlewares on CPU devices
jobs      runs programs and daemons, and ends them
place     where they run: as units of systemd, or as processes
"""
