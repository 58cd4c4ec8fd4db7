# SPDX-License-Identifier: Apache-2.0
"""The compute hosts: one that runs guests in QEMU, and several that only pretend.

All are `nova-compute` processes of this one machine that go by different host names. The real one
emulates the processor (TCG), as a virtual machine can seldom offer KVM. The others use the fake driver
that comes with Nova: their servers take resources, ports and states like any other, and run nothing.

Which kind a server lands on is its flavor's choice, by a trait that each host reports.
"""

from __future__ import annotations

import grp
import pwd
import shlex
import uuid
from pathlib import Path
from typing import Any

from tests.openstack.bed import commands, files, nova, processes, rest, switch, venv
from tests.openstack.bed.moments import seconds
from tests.openstack.bed.processes import Daemon
from tests.openstack.bed.settings import ETC, FAKE_HOSTS, LOG, REAL_HOST, RUN, STATE, VERSION_LOCK
from tests.openstack.bed.work import Unit

LIBVIRT_USER = "libvirt-qemu"
HOSTS = (REAL_HOST, *FAKE_HOSTS)
REAL_TRAIT = "CUSTOM_RUNS_GUESTS"
FAKE_TRAIT = "CUSTOM_PRETENDS"

LIBVIRT = STATE / "libvirt"
LIBVIRT_SOCKET = RUN / "libvirt" / "libvirt-sock"
LIBVIRT_URL = f"qemu+unix:///system?socket={LIBVIRT_SOCKET}"
LIBVIRTD_CONF = LIBVIRT / "etc" / "libvirtd.conf"
QEMU_CONF = LIBVIRT / "etc" / "qemu.conf"

# libvirt knows some of its paths at build time only, and the machine by its host name. In namespaces of
# its own both are ours, and the machine's own libvirt, if it has one, is neither seen nor changed.
BINDS = {
    LIBVIRT / "etc": "/etc/libvirt",
    LIBVIRT / "lib": "/var/lib/libvirt",
    LIBVIRT / "cache": "/var/cache/libvirt",
    LOG / "libvirt": "/var/log/libvirt",
    RUN / "libvirt": "/run/libvirt",
}


def _libvirtd() -> Daemon:
    binds = [f"mount --bind {shlex.quote(str(ours))} {theirs}" for ours, theirs in BINDS.items()]
    rename = f"echo {REAL_HOST} >/proc/sys/kernel/hostname"
    pid_file = shlex.quote(str(RUN / "libvirtd.pid"))
    script = " && ".join([*binds, rename, f"exec libvirtd --pid-file {pid_file}"])
    return Daemon(
        name="libvirtd",
        command=("unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script),
        reads=(LIBVIRTD_CONF, QEMU_CONF),
        ready=lambda: commands.succeeds("virsh", "-c", LIBVIRT_URL, "version"),
    )


def _directory(host: str) -> Path:
    return STATE / f"nova-{host}"


def _add_libvirt_user() -> None:
    """Have the system user that libvirt looks up when it starts.

    Debian makes it in a package that brings systemd along, which a container has no use for.
    """
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


def _configuration(host: str) -> Path:
    return ETC / f"nova-{host}" / "nova.conf"


def _traits(host: str) -> Path:
    return _configuration(host).parent / "providers" / "traits.yaml"


def _compute(host: str) -> Daemon:
    name = f"nova-compute-{host}"
    return Daemon(
        name=name,
        command=(venv.program("nova-compute"), "--config-file", _configuration(host)),
        reads=(_configuration(host), _traits(host), VERSION_LOCK),
        ready=lambda: _reported(host, processes.running(name)),
    )


LIBVIRTD = _libvirtd()
COMPUTES = tuple(_compute(host) for host in HOSTS)


def units() -> list[Unit]:
    return [
        Unit("libvirt", prepare=prepare_libvirt, daemons=(LIBVIRTD,)),
        Unit(
            "hypervisors",
            # A nova-compute that starts before the conductor answers sleeps for ten seconds.
            needs=("libvirt", "nova conductor and scheduler", "glance", "neutron API"),
            prepare=prepare,
            daemons=COMPUTES,
            finish=map_hosts,
        ),
    ]


def prepare_libvirt() -> None:
    _add_libvirt_user()
    for ours, theirs in BINDS.items():
        ours.mkdir(parents=True, exist_ok=True)
        Path(theirs).mkdir(parents=True, exist_ok=True)  # something to mount on
    identity = LIBVIRT / "uuid"
    if not identity.exists():
        files.write(identity, str(uuid.uuid4()))
    _write_libvirt(
        LIBVIRTD_CONF,
        {
            "unix_sock_rw_perms": "0700",
            "auth_unix_ro": "none",
            "auth_unix_rw": "none",
            "host_uuid": identity.read_text(),
        },
    )
    _write_libvirt(
        QEMU_CONF,
        {
            "user": "root",
            "group": "root",
            "security_driver": "none",
            "cgroup_controllers": [],
            "namespaces": [],
            "stdio_handler": "file",  # there is no virtlogd
            "remember_owner": 0,
        },
    )


def prepare() -> None:
    """Configuration of every host: no database in it, as computes go through the conductor."""
    for host in HOSTS:
        (_directory(host) / "instances").mkdir(parents=True, exist_ok=True)
        trait = REAL_TRAIT if host == REAL_HOST else FAKE_TRAIT
        files.write(_traits(host), _provider(trait))
        own = _real() if host == REAL_HOST else _fake()
        own["compute"]["provider_config_location"] = _traits(host).parent
        files.write_ini(
            _configuration(host), files.merge(nova.common(_directory(host).name, host), own)
        )


def map_hosts() -> None:
    """Have the scheduler know the hosts; on its own it would look for them once a minute."""
    known = {line.split("|")[-2].strip() for line in _host_lines()}
    if not set(HOSTS) <= known:
        nova.manage("cell_v2", "discover_hosts", "--by-service")


def _host_lines() -> list[str]:
    listed = nova.manage("cell_v2", "list_hosts").splitlines()
    return [line for line in listed if line.startswith("|")][1:]


def _real() -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {
            "compute_driver": "libvirt.LibvirtDriver",
            "use_cow_images": True,
            # Nobody in the guest listens to the power button that is pressed before the plug is pulled.
            "shutdown_timeout": 2,
            "reserved_host_memory_mb": 0,
            "initial_cpu_allocation_ratio": 16.0,
            "initial_ram_allocation_ratio": 1.0,
            "initial_disk_allocation_ratio": 4.0,
        },
        "compute": {},
        "libvirt": {
            "virt_type": "qemu",
            "connection_uri": LIBVIRT_URL,
            "cpu_mode": "none",
            "hw_machine_type": "x86_64=pc",
            "num_pcie_ports": 8,
            # MiB for translated code: QEMU's own choice makes a guest of 512 MiB take 800. When it is full, all is
            # translated anew; with 64 a boot takes a little less than that without GSaaS and more with it, and seems
            # a fifth slower.
            "tb_cache_size": 128,
            "inject_partition": -2,
        },
        "os_vif_ovs": {"ovsdb_connection": switch.DATABASE_URL},
    }


def _fake() -> dict[str, dict[str, Any]]:
    return {
        "DEFAULT": {"compute_driver": "fake.FakeDriverWithoutFakeNodes"},
        # There is no tap, so nobody would ever say that it was plugged.
        "compute": {"live_migration_wait_for_vif_plug": False},
    }


def _provider(trait: str) -> str:
    return (
        'meta:\n  schema_version: "1.0"\n'
        "providers:\n  - identification:\n      uuid: $COMPUTE_NODE\n"
        f"    traits:\n      additional: [{trait}]\n"
    )


def _write_libvirt(path: Path, options: dict[str, object]) -> None:
    """libvirt's configuration quotes its strings, and needs no escaping of ours."""
    lines = [
        f"{name} = " + (f'"{value}"' if isinstance(value, str) else str(value))
        for name, value in options.items()
    ]
    files.write(path, "\n".join(lines) + "\n")


def _reported(host: str, record: processes.Record | None) -> bool:
    """Whether *host* has said it is up since its process began, and is listed as a hypervisor."""
    services = rest.cloud().find("compute", "os-services", binary="nova-compute", host=host)
    return record is not None and any(
        service["state"] == "up" and seconds(service["updated_at"]) > record.since
        for service in services
    )
