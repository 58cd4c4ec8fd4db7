# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each measures GSaaS and what it is compared with, in the same run. `./dev bench` lists them."""
