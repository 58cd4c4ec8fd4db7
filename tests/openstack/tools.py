# SPDX-License-Identifier: Apache-2.0
"""Install what the tests with the tools of others need, while the cloud is still in use by others."""

from __future__ import annotations

from tests.openstack import heat, horizon, tempest


def main() -> None:
    """Install all of it; nothing is done twice."""
    for tool in (tempest, heat, horizon):
        tool.install()


if __name__ == "__main__":
    main()
