# SPDX-License-Identifier: Apache-2.0
"""Debian packages: what the cloud stands on that is not from PyPI. Nothing is started by them."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.openstack.bed import commands
from tests.openstack.bed.work import Unit

PACKAGES = {
    "database and messages": (
        "mariadb-server-core",
        "mariadb-client-core",
        "rabbitmq-server",
        "memcached",
    ),
    "hypervisor": (
        "qemu-system-x86",
        "qemu-utils",
        "libvirt-daemon",
        "libvirt-daemon-driver-qemu",
        "libvirt-clients",
        "genisoimage",
    ),
    "network": (
        "openvswitch-switch",
        "dnsmasq-base",
        "dnsmasq-utils",
        "iproute2",
        "iptables",
        "ebtables",
        "ethtool",
        "conntrack",
        "iputils-arping",
        "procps",
    ),
    "virtual environment": (
        "python3-venv",
        "python3-dev",
        "gcc",
        "libc6-dev",
        "pkg-config",
        "libvirt-dev",
    ),
    "guest image": ("debootstrap", "cpio", "gzip", "zstd", "xz-utils", "kmod", "e2fsprogs"),
}

APT = ("apt-get", "-o", "DPkg::Lock::Timeout=900", "-y", "-qq")
LIBVIRT_USER = "libvirt-qemu"
POLICY = Path("/usr/sbin/policy-rc.d")
NO_STARTS = (
    "#!/bin/sh\n# While the test bed installs packages; it starts its own servers.\nexit 101\n"
)


def units() -> list[Unit]:
    return [Unit("packages", prepare=install)]


def install() -> None:
    """Install what is missing, and the system user that libvirt looks up when it starts."""
    add(_wanted())
    _add_libvirt_user()


def add(names: Iterable[str]) -> None:
    """Install those of the packages *names* that are missing."""
    present = _installed()
    if missing := [name for name in names if name not in present]:
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        with _no_daemon_starts():
            commands.run(*APT, "update", env=environment)
            commands.run(*APT, "--no-install-recommends", "install", *missing, env=environment)


def _wanted() -> list[str]:
    return [name for names in PACKAGES.values() for name in names]


def _installed() -> set[str]:
    listed = commands.run("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n")
    return {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}


@contextlib.contextmanager
def _no_daemon_starts() -> Iterator[None]:
    """Keep the packages from starting their servers, unless the machine has its own say on that."""
    if POLICY.exists() and POLICY.read_text() != NO_STARTS:
        yield
        return
    POLICY.write_text(NO_STARTS)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def _add_libvirt_user() -> None:
    """Debian makes it in a package that brings systemd along, which a container has no use for."""
    try:
        grp.getgrnam(LIBVIRT_USER)
    except KeyError:
        commands.run("groupadd", "--system", LIBVIRT_USER)
    try:
        pwd.getpwnam(LIBVIRT_USER)
    except KeyError:
        commands.run(
            *("useradd", "--system", "--gid", LIBVIRT_USER, "--home-dir", "/var/lib/libvirt"),
            *("--no-create-home", "--shell", "/usr/sbin/nologin", LIBVIRT_USER),
        )
