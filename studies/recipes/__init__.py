# SPDX-License-Identifier: Apache-2.0
"""Published experiments, one module each.

A recipe has a function that runs the experiment (`run`, in openb_cloudified `rows`), and a function `claims` that
yields the paper's claims with the measured values. Only in openb_local `run` yields the claims itself.
"""
