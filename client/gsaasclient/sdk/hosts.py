# SPDX-License-Identifier: Apache-2.0
"""Hosts."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import InService


class Host(InService):
    """A GPU host or compute host, which administrators see. The attributes are the API's fields of the same names."""

    resource_key = "host"
    resources_key = "hosts"
    base_path = "/hosts"

    allow_fetch = True
    allow_list = True

    _query_mapping = resource.QueryParameters("sort_key", "sort_dir")

    name = resource.Body("name", alternate_id=True)
    drain = resource.Body("drain", type=dict)
    """How far it is that leases leave it: `since`, `by`, `leases`; None if they are not to."""
    free_mb = resource.Body("free_mb", type=int)
    gpu_address = resource.Body("gpu_address")
    gpus = resource.Body("gpus", type=int)
    is_compute = resource.Body("compute", type=bool)
    is_silent = resource.Body("silent", type=bool)
    memory_mb = resource.Body("memory_mb", type=int)
    monitor_interval = resource.Body("monitor_interval")
    monitor_seen_at = resource.Body("monitor_seen_at")
    problems = resource.Body("problems", type=list)
