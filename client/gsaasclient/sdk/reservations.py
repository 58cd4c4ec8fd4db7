# SPDX-License-Identifier: Apache-2.0
"""Reservations."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import Resource


class Reservation(Resource):
    """cGPUs for a time to come. The attributes are the API's fields of the same names; new in microversion 1.7."""

    resource_key = "reservation"
    resources_key = "reservations"
    base_path = "/reservations"

    allow_create = True
    allow_fetch = True
    allow_commit = True
    allow_delete = True
    allow_list = True
    commit_method = "PATCH"

    _query_mapping = resource.QueryParameters("status", "all_projects", "sort_key", "sort_dir")

    cgpus = resource.Body("cgpus", type=dict)
    created_at = resource.Body("created_at")
    degraded_reasons = resource.Body("degraded_reasons", type=list)
    """For administrators only."""
    end = resource.Body("end")
    is_degraded = resource.Body("degraded", type=bool)
    """Some of its cGPUs are on a GPU that is out of service; they move once another one has room."""
    kept = resource.Body("kept", type=int)
    """How many of its cGPUs it has already; others still use the rest."""
    lease_ids = resource.Body("lease_ids", type=list)
    project_id = resource.Body("project_id")
    start = resource.Body("start")
    status = resource.Body("status")
    user_id = resource.Body("user_id")
