# SPDX-License-Identifier: Apache-2.0
"""Scheduling policies."""

from __future__ import annotations

from openstack import resource

from gsaasclient.sdk.base import Resource


class Policy(Resource):
    """How GPUs are chosen among those that fit. The attributes are the API's fields of the same names."""

    resource_key = "policy"
    resources_key = "policies"
    base_path = "/policies"

    allow_fetch = True
    allow_list = True

    name = resource.Body("name", alternate_id=True)
    about = resource.Body("about")
    """Its advantages and disadvantages; of a policy that was fetched, not of one in a list."""
    description = resource.Body("description")
    is_allowed = resource.Body("allowed", type=bool)
    is_configured = resource.Body("configured", type=bool)
    is_default = resource.Body("default", type=bool)
    source = resource.Body("source")
