# SPDX-License-Identifier: Apache-2.0
"""The metrics for Prometheus.

stored   gauges of the cloud's state, from the database     counted  counters of what happened in this process
exposition  both as the text that Prometheus reads

No label names a project, a user, a lease or an address, because `/metrics` needs no token. Labels name hosts only if
the operator has enabled metrics of every GPU ([api]metrics_gpus).
"""
