# SPDX-License-Identifier: Apache-2.0
"""Access rules: one module per kind of resource, each rule with the requests that it guards.

Operators override them in oslo.policy's file `policy.yaml`; `oslopolicy-sample-generator --namespace gsaas` prints a
sample of it. In this package "policy" is oslo.policy's word; everywhere else in GSaaS it means a scheduling policy.
"""

from __future__ import annotations

import itertools

from oslo_config import cfg
from oslo_policy import policy

from gsaas.api.rbac import (
    base,
    checks,
    endpoints,
    gpus,
    grants,
    hosts,
    leases,
    limits,
    policies,
    queue,
    reservations,
    settings,
    usage,
    vendordata,
)

MODULES = (
    base,
    leases,
    grants,
    queue,
    reservations,
    checks,
    gpus,
    hosts,
    endpoints,
    policies,
    limits,
    usage,
    settings,
    vendordata,
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule (entry point `oslo.policy.policies`)."""
    return list(itertools.chain.from_iterable(module.rules() for module in MODULES))


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer of these rules, with the changes of the operator's file."""
    result = policy.Enforcer(conf)
    result.register_defaults(list_rules())
    return result
