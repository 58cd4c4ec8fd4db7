# SPDX-License-Identifier: Apache-2.0
"""The queue."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import Resource


class Place(Resource):
    """A request that waits in the queue. The attributes are the API's fields of the same names."""

    resources_key = "places"
    base_path = "/queue"

    allow_list = True

    _query_mapping = resource.QueryParameters("sort_key", "sort_dir")

    lease_id = resource.Body("lease_id", alternate_id=True)
    cgpus = resource.Body("cgpus", type=dict)
    estimate_seconds = resource.Body("estimate_seconds")
    is_attended = resource.Body("attended", type=bool)
    position = resource.Body("position", type=int)
    priority = resource.Body("priority", type=int)
    project_id = resource.Body("project_id")
    queued_at = resource.Body("queued_at")
    user_id = resource.Body("user_id")
    wait_until = resource.Body("wait_until")
