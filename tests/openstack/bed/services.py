# SPDX-License-Identifier: Apache-2.0
"""The parts of the cloud. To put a service under test into it, add its module here.

A part is a module with a function `units()`. It may use `keystone.add_service` for its user and its
place in the catalogue, `database.create` and `messages.url` for its state and its bus, and what it
starts as a `processes.Daemon` is shown by `status` and ended by `down` like everything else.
"""

from __future__ import annotations

from types import ModuleType

from tests.openstack.bed import (
    cache,
    credentials,
    database,
    glance,
    gsaas,
    guest_image,
    hypervisors,
    images,
    keystone,
    machines,
    messages,
    neutron,
    nova,
    placement,
    switch,
    tenants,
    user_data,
    venv,
)
from tests.openstack.bed.processes import Daemon
from tests.openstack.bed.work import Unit

PARTS: tuple[ModuleType, ...] = (
    venv,
    credentials,
    guest_image,
    database,
    cache,
    machines,
    messages,
    switch,
    keystone,
    placement,
    glance,
    nova,
    neutron,
    hypervisors,
    tenants,
    images,
    user_data,
    gsaas,
)


def units() -> list[Unit]:
    """All units of the bed; their order does not matter."""
    return [unit for part in PARTS for unit in part.units()]


def daemons() -> list[Daemon]:
    """All daemons of the bed, in the order of their parts."""
    return [daemon for unit in units() for daemon in unit.daemons]
