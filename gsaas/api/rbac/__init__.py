"""Access rules: one module per noun, each rule with the calls that it guards.

Operators override them in `policy.yaml`, oslo.policy's file; one to begin with is printed by
`oslopolicy-sample-generator --namespace gsaas`.
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
    settings,
    usage,
)

MODULES = (
    base,
    leases,
    grants,
    queue,
    checks,
    gpus,
    hosts,
    endpoints,
    policies,
    limits,
    usage,
    settings,
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule (entry point `oslo.policy.policies`)."""
    return list(itertools.chain.from_iterable(module.rules() for module in MODULES))


def enforcer(conf: cfg.ConfigOpts) -> policy.Enforcer:
    """Return an enforcer of these rules, as the operator's policy file changes them."""
    made = policy.Enforcer(conf)
    made.register_defaults(list_rules())
    return made
