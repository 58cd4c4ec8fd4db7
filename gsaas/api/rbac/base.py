# SPDX-License-Identifier: Apache-2.0
"""The personas (Keystone's default roles) that all other rules refer to.

A Keystone token contains the implied roles as well (admin implies manager, manager implies member, member implies
reader). These rules imply them too, so that an entry of a token file may have `admin` as its only role.
"""

from __future__ import annotations

from oslo_policy import policy

ADMIN = "rule:gsaas:admin"
"""Operators of the cloud."""
SERVICE = "rule:gsaas:service"
"""Other services of the cloud, such as billing: they may see which project each lease belongs to."""
MANAGER = "rule:gsaas:project-manager"
MEMBER = "rule:gsaas:project-member"
READER = "rule:gsaas:project-reader"
READER_OR_SERVICE = f"{READER} or {SERVICE}"
ADMIN_OR_SERVICE = f"{ADMIN} or {SERVICE}"

IN_PROJECT = "project_id:%(project_id)s and not None:%(project_id)s"
"""The caller's project owns the resource. The second half excludes resources without a project: oslo.policy compares
text, so that the "None" of such a resource would equal the "None" of a token without a project."""


def rules() -> list[policy.RuleDefault]:
    """Return the rules that define the personas."""
    return [
        policy.RuleDefault("gsaas:admin", "role:admin", "An operator of the cloud."),
        policy.RuleDefault("gsaas:service", "role:service", "Another service of the cloud."),
        policy.RuleDefault(
            "gsaas:project-manager",
            f"{ADMIN} or (role:manager and {IN_PROJECT})",
            "A manager of the project that owns the resource.",
        ),
        policy.RuleDefault(
            "gsaas:project-member",
            f"{MANAGER} or (role:member and {IN_PROJECT})",
            "A member of the project that owns the resource.",
        ),
        policy.RuleDefault(
            "gsaas:project-reader",
            f"{MEMBER} or (role:reader and {IN_PROJECT})",
            "A reader of the project that owns the resource.",
        ),
    ]
