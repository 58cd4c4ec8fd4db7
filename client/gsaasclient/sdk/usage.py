# SPDX-License-Identifier: Apache-2.0
"""Usage of GPUs by project, and limits of a project."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import Resource


class Usage(Resource):
    """What projects used in a period: `projects` has one entry for each, as the API has it."""

    resource_key = "usage"
    base_path = "/usage"

    allow_fetch = True

    currency = resource.Body("currency")
    end = resource.Body("end")
    projects = resource.Body("projects", type=list)
    start = resource.Body("start")


class Limits(Resource):
    """The project's limits: for each of them its `limit`, -1 for none, and how much of it is `used`."""

    resource_key = "limits"
    base_path = "/limits"

    allow_fetch = True

    cgpus = resource.Body("cgpus", type=dict)
    gpu_memory_mb = resource.Body("gpu_memory_mb", type=dict)
    leases = resource.Body("leases", type=dict)
