"""The personas that every other rule is made of.

They are Keystone's default roles. Keystone hands out implied roles with a token (an admin is a
manager is a member is a reader); these rules imply them too, so that a token file may say just
`admin`.
"""

from __future__ import annotations

from oslo_policy import policy

ADMIN = "rule:gsaas:admin"
"""Operators of the cloud."""
SERVICE = "rule:gsaas:service"
"""Other services of the cloud, such as billing: they may see whose lease is whose."""
MANAGER = "rule:gsaas:project-manager"
MEMBER = "rule:gsaas:project-member"
READER = "rule:gsaas:project-reader"
READER_OR_SERVICE = f"{READER} or {SERVICE}"
ADMIN_OR_SERVICE = f"{ADMIN} or {SERVICE}"

IN_PROJECT = "project_id:%(project_id)s and not None:%(project_id)s"
"""The second half is for a thing without a project, should there ever be one: rules are compared as
text, and a token without a project would equal it."""


def rules() -> list[policy.RuleDefault]:
    return [
        policy.RuleDefault("gsaas:admin", "role:admin", "An operator of the cloud."),
        policy.RuleDefault("gsaas:service", "role:service", "Another service of the cloud."),
        policy.RuleDefault(
            "gsaas:project-manager",
            f"{ADMIN} or (role:manager and {IN_PROJECT})",
            "A manager of the project that owns the thing.",
        ),
        policy.RuleDefault(
            "gsaas:project-member",
            f"{MANAGER} or (role:member and {IN_PROJECT})",
            "A member of the project that owns the thing.",
        ),
        policy.RuleDefault(
            "gsaas:project-reader",
            f"{MEMBER} or (role:reader and {IN_PROJECT})",
            "A reader of the project that owns the thing.",
        ),
    ]
