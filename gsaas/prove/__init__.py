# SPDX-License-Identifier: Apache-2.0
"""The acceptance test of GPU hosts, which an operator runs before tenants come: `gsaas-manage prove`.

verdicts  what the measured values mean: pure       report    the table and the JSON document: pure
gpu_host  measures on a GPU host                    path      measures from a consumer's host to a GPU
program   the CUDA program; needs nothing but Python, so that it can be sent to any host
cuda      runs that program: natively, as a tenant's daemon runs, through the middleware
"""
