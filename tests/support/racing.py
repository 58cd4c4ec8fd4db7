# SPDX-License-Identifier: Apache-2.0
"""Processes for tests in which several do the same at once: a server forks them, which has imported what all need."""

from __future__ import annotations

import multiprocessing

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["gsaas.gpgpums.claims", "gsaas.gpgpums.policies.least_load_fit", "pytest"]
)
