# SPDX-License-Identifier: Apache-2.0
"""The user data, or the vendor data, of a server with cGPUs. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from gsaas.cloudinit import boot, parts


def user_data(
    env: Mapping[str, str],
    masked_prefix: str,
    caller: bytes | None = None,
    *,
    interface_wait: int = 60,
    system_services: bool = True,
) -> str:
    """Return the base64 text that Nova takes as `user_data`.

    *env* is the client environment that a remoting driver made, *masked_prefix* the prefix of masked addresses in CIDR
    form, *caller* the tenant's own user data, not base64. *interface_wait* (seconds) and *system_services* are the
    options of `[cloudinit]`. Raises `UserDataTooLarge`; `BadRequest` for user data that cannot be included;
    `ValueError` for an environment that cannot be represented, which `gsaas.remoting` prevents.
    """
    hook = boot.boothook(env, masked_prefix, wait=interface_wait, system_services=system_services)
    return parts.encode(parts.compose(hook, caller))


def vendor_data(
    env: Mapping[str, str],
    masked_prefix: str,
    *,
    interface_wait: int = 60,
    system_services: bool = True,
) -> str:
    """Return the vendor data of a server that GSaaS does not make: the script that `user_data` has, too.

    cloud-init runs the boothooks of vendor data and of user data. Raises `ValueError` for an environment that cannot be
    represented.
    """
    return boot.boothook(env, masked_prefix, wait=interface_wait, system_services=system_services)
