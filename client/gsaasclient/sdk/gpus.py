# SPDX-License-Identifier: Apache-2.0
"""GPUs, and how many there are."""

from __future__ import annotations

from typing import Self

from keystoneauth1.adapter import Adapter
from openstack import resource

from gsaasclient.sdk.base import InService, Resource


class Gpu(InService):
    """A GPU, which administrators see. The attributes are the API's fields of the same names."""

    resource_key = "gpu"
    resources_key = "gpus"
    base_path = "/gpus"

    allow_fetch = True
    allow_list = True

    _query_mapping = resource.QueryParameters("sort_key", "sort_dir")

    uuid = resource.Body("uuid", alternate_id=True)
    awaits_operator = resource.Body("awaits_operator", type=bool)
    compute_capability = resource.Body("compute_capability")
    daemon_address = resource.Body("daemon_address")
    generation = resource.Body("generation", type=int)
    host = resource.Body("host")
    index = resource.Body("index", type=int)
    kind = resource.Body("kind")
    leases = resource.Body("leases", type=list)
    memory_mb = resource.Body("memory_mb", type=int)
    mode = resource.Body("mode")
    model = resource.Body("model")
    parent_uuid = resource.Body("parent_uuid")
    reading = resource.Body("reading", type=dict)
    reported_by = resource.Body("reported_by", type=list)
    reserved_mb = resource.Body("reserved_mb", type=int)
    used_mb = resource.Body("used_mb", type=int)
    withdrawn = resource.Body("withdrawn")

    def adopt(self, session: Adapter, host: str) -> Self:
        """Consent to its move to another host, which reports it."""
        response = session.post(
            f"{self.path}/adopt",
            json={"adopt": {"host": host}},
            microversion=self._get_microversion(session),
        )
        self._translate_response(response)
        return self


class Model(Resource):
    """Equal GPUs, and how much of them is free. The attributes are the API's fields of the same names."""

    resources_key = "models"
    base_path = "/models"

    allow_list = True

    compute_capability = resource.Body("compute_capability")
    free_mb = resource.Body("free_mb", type=int)
    gpus = resource.Body("gpus", type=int)
    idle = resource.Body("idle", type=int)
    kind = resource.Body("kind")
    largest_share_mb = resource.Body("largest_share_mb", type=int)
    memory_mb = resource.Body("memory_mb", type=int)
    model = resource.Body("model")


class Totals(Resource):
    """How many GPUs and hosts the cloud has, and how much of their memory is free."""

    resource_key = "totals"
    base_path = "/gpus"

    allow_fetch = True

    free_mb = resource.Body("free_mb", type=int)
    gpus = resource.Body("gpus", type=int)
    hosts = resource.Body("hosts", type=int)
    idle = resource.Body("idle", type=int)
    memory_mb = resource.Body("memory_mb", type=int)
