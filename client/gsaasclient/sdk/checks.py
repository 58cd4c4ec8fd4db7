# SPDX-License-Identifier: Apache-2.0
"""Checks: whether a request would fit now."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import Resource


class Check(Resource):
    """A request for cGPUs, and whether it would fit. The attributes are the API's fields of the same names."""

    resource_key = "check"
    base_path = "/checks"

    allow_create = True

    compute_capability = resource.Body("compute_capability")
    consumer = resource.Body("consumer", type=dict)
    count = resource.Body("count", type=int)
    gpu_model = resource.Body("gpu_model")
    host = resource.Body("host")
    hosts = resource.Body("hosts")
    kind = resource.Body("kind")
    locality = resource.Body("locality")
    memory_mb = resource.Body("memory_mb", type=int)
    mode = resource.Body("mode")
    policy = resource.Body("policy")
    reservation = resource.Body("reservation")

    code = resource.Body("code")
    """The code of the error that a launch would get; None if it fits."""
    devices = resource.Body("devices", type=list)
    filters = resource.Body("filters", type=list)
    fits = resource.Body("fits", type=bool)
    nearest = resource.Body("nearest", type=dict)
    """The largest request of this kind that would fit now."""
    reason = resource.Body("reason")
    relaxed = resource.Body("relaxed")
