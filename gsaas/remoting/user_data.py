# SPDX-License-Identifier: Apache-2.0
"""Composes the user data, or the vendor data, of a lease's server.

Pure, so that the API can check the result before it claims anything.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

from oslo_config import cfg

from gsaas.cloudinit import parts
from gsaas.cloudinit.render import user_data, vendor_data
from gsaas.remoting.base import ClientDevice, RemotingDriver


def compose(
    conf: cfg.ConfigOpts,
    driver: RemotingDriver,
    lease_id: str,
    devices: Sequence[ClientDevice],
    caller: str | None,
) -> str:
    """Return base64 user data that gives a server its cGPUs; *caller* is the tenant's own, as base64.

    Raises `UserDataTooLarge`, `RemotingLimit`, and `BadRequest` for user data that cannot be carried along.
    """
    return user_data(
        driver.environment(lease_id, devices),
        conf.rodvr.masked_prefix,
        base64.b64decode(caller) if caller else None,
        interface_wait=conf.cloudinit.interface_wait,
        system_services=conf.cloudinit.system_services,
    )


def notes(caller: str) -> list[str]:
    """Return what a tenant should know about the tenant's own user data, base64. Raises `BadRequest` as `compose`."""
    return parts.notes(base64.b64decode(caller))


def compose_vendor_data(
    conf: cfg.ConfigOpts, driver: RemotingDriver, lease_id: str, devices: Sequence[ClientDevice]
) -> str:
    """Return vendor data that gives a plain server its cGPUs, as text. Raises `RemotingLimit`."""
    return vendor_data(
        driver.environment(lease_id, devices),
        conf.rodvr.masked_prefix,
        interface_wait=conf.cloudinit.interface_wait,
        system_services=conf.cloudinit.system_services,
    )
