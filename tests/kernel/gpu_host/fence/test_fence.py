# SPDX-License-Identifier: Apache-2.0
"""Which hosts reach a daemon and which do not, by real connections and by nft."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gsaas.gpu_host.fence.fence import Fence
from gsaas.gpu_host.fence.layout import ControlGroup
from gsaas.gpu_host.fence.ruleset import DYNAMIC_USERS
from gsaas.gpu_host.fence.table import Elements
from gsaas.netlink.transport import NetlinkRefused
from gsaas.objects.daemon import Admission
from tests.kernel.gpu_host.fence.network import (
    ADDRESSES,
    GPU_HOST,
    NOBODY,
    OPEN_PORT,
    PORTS,
    RANGES,
    Network,
)
from tests.openstack.bed.booted import add_group
from tests.openstack.bed.errors import BedError
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.kernel

PER_GPU, PER_LEASE = PORTS
REFUSED = "ConnectionRefusedError"


def admit(*hosts: str, port: int = PER_LEASE) -> list[Admission]:
    return [Admission(ADDRESSES[host], port) for host in hosts]


def answer(port: int, host: str) -> str:
    return f"gpu:{port} peer={ADDRESSES[host]}"


def test_at_first_nobody_reaches_a_daemon_and_everything_else_is_untouched(network, fence):
    for port in PORTS:
        assert network.ask("c1", port) == REFUSED
    assert network.ask("c1", OPEN_PORT) == answer(OPEN_PORT, "c1")


def test_an_admitted_host_reaches_its_daemon_and_no_other(network, fence):
    fence.apply(admit("c1"))
    assert network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1")
    assert network.ask("c1", PER_GPU) == REFUSED
    assert network.ask("c2", PER_LEASE) == REFUSED
    assert network.ask("odd", PER_LEASE) == REFUSED
    fence.apply([*admit("c1"), *admit("c2", port=PER_GPU)])
    assert network.ask("c2", PER_GPU) == answer(PER_GPU, "c2")
    assert network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1")


def test_what_is_admitted_is_what_nft_lists_and_what_is_reported(network, fence):
    admissions = [*admit("c1", "c2"), *admit("c1", port=PER_GPU)]
    fence.apply(admissions)
    assert network.admitted() == {(a.address, a.port) for a in admissions}
    assert fence.report().admissions == frozenset(admissions)


def test_refusals_are_counted_in_all_and_by_source(network, fence):
    for _ in range(3):
        network.ask("odd", PER_LEASE)
    assert fence.report().refused == 3
    listed = json.loads(network.nft("-j", "list", "set", "inet", "gsaas_fence", "refused"))
    (element,) = listed["nftables"][1]["set"]["elem"]
    assert (element["elem"]["val"], element["elem"]["counter"]["packets"]) == (
        ADDRESSES["odd"],
        3,
    )


def test_ipv6_is_no_way_around(network, fence):
    fence.apply(admit("c1"))
    program = (
        "import socket,sys\n"
        "try: socket.create_connection(('fd51::1', 20000), 3); print('in')\n"
        "except OSError as error: print(type(error).__name__)\n"
    )
    with subprocess.Popen(
        [
            *("ip", "netns", "exec", network.netns("gpu"), "/usr/bin/python3", "-c"),
            "import socket,time; s=socket.create_server(('::', 20001), family=socket.AF_INET6);"
            "print('up', flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    ) as listener:
        assert listener.stdout.readline() == "up\n"
        command = ["ip", "netns", "exec", network.netns("c1"), "/usr/bin/python3", "-c"]
        done = subprocess.run(
            [*command, program.replace("20000", "20001")],
            capture_output=True,
            text=True,
            check=True,
        )
        listener.kill()
    assert done.stdout.strip() == REFUSED


def test_a_removed_admission_cuts_its_connections_and_no_others(network, fence):
    fence.apply([*admit("c1", "c2"), *admit("c1", port=PER_GPU)])
    with (
        network.waiting("c1", PER_LEASE) as loser,
        network.waiting("c2", PER_LEASE) as neighbour,
        network.waiting("c1", PER_GPU) as other,
    ):
        fence.apply([*admit("c2"), *admit("c1", port=PER_GPU)])
        assert loser.communicate(timeout=PATIENCE)[0].strip() == "ConnectionResetError"
        assert neighbour.poll() is None
        assert other.poll() is None
        # The daemon's side is closed, too, and not only after a keepalive.
        assert network.established("c1", PER_LEASE) == 0
        assert network.established("c2", PER_LEASE) == 1


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group, as systemd makes one for the monitor."""
    try:
        folder = add_group(f"gsaas-fence-{os.getpid()}")
    except BedError as error:
        pytest.skip(str(error))
    yield folder
    folder.rmdir()


@pytest.mark.parametrize("address", ["127.0.0.1", GPU_HOST])
def test_the_monitor_reaches_its_daemons_and_no_other_program_of_the_host_does(
    network, make_fence, group, address
):
    level = len(group.relative_to(_mount_of_control_groups()).parts)
    fence = make_fence(monitor=ControlGroup(group.stat().st_ino, level))
    for uid in (0, NOBODY):
        said = network.ask("gpu", PER_LEASE, to=address, uid=uid, group=group)
        assert said.startswith("gpu:20000"), "its user does not matter"
        assert network.ask("gpu", PER_LEASE, to=address, uid=uid) == REFUSED
    fence.apply(admit("gpu"))
    assert network.ask("gpu", PER_LEASE, to=address, uid=NOBODY).startswith("gpu:20000")
    assert network.ask("gpu", PER_GPU, to=address, uid=NOBODY) == REFUSED
    assert fence.report().admissions == frozenset(admit("gpu"))
    assert network.ask("c1", PER_LEASE) == REFUSED


@pytest.mark.parametrize("uid", DYNAMIC_USERS)
def test_no_daemon_reaches_another_one_even_where_programs_of_the_host_may(network, fence, uid):
    fence.apply(admit("gpu"))
    for address in ("127.0.0.1", GPU_HOST):
        assert network.ask("gpu", PER_LEASE, to=address, uid=uid) == REFUSED
        for neighbour in (DYNAMIC_USERS[0] - 1, DYNAMIC_USERS[1] + 1):
            said = network.ask("gpu", PER_LEASE, to=address, uid=neighbour)
            assert said.startswith("gpu:20000"), "it is no user of a daemon"


@pytest.mark.parametrize("uid", DYNAMIC_USERS)
def test_no_daemon_reaches_those_of_another_gpu_host_that_admits_this_one(network, make_fence, uid):
    """As it does for leases without a VM whose program runs on this host: c1 is a GPU host, too, and has a fence."""
    here = Fence(ADDRESSES["c1"], netns=network.netns("c1"))
    make_fence().apply(admit("c1"))
    try:
        here.start(RANGES)
        assert network.ask("c1", PER_LEASE, uid=uid) == REFUSED
        assert network.ask("c1", OPEN_PORT, uid=uid) == answer(OPEN_PORT, "c1")
        for other in (0, DYNAMIC_USERS[0] - 1, DYNAMIC_USERS[1] + 1):
            assert network.ask("c1", PER_LEASE, uid=other) == answer(PER_LEASE, "c1")
    finally:
        here.teardown()


NEIGHBOURS = (20001, 20002)


@pytest.fixture
def units() -> Iterator[list[Path]]:
    """The control groups of two daemons, as systemd makes them; the first has the first port of NEIGHBOURS."""
    try:
        folders = [add_group(f"gsaas-daemon-{os.getpid()}-{number}") for number in range(2)]
    except BedError as error:
        pytest.skip(str(error))
    yield folders
    for folder in folders:
        until(lambda folder=folder: not (folder / "cgroup.procs").read_text(), "its programs")
        folder.rmdir()


def groups_of(units: list[Path]) -> dict[int, ControlGroup]:
    level = len(units[0].relative_to(_mount_of_control_groups()).parts)
    return {
        port: ControlGroup(folder.stat().st_ino, level)
        for port, folder in zip(NEIGHBOURS, units, strict=True)
    }


def test_who_listens_on_the_port_of_another_daemon_gets_none_of_its_clients(
    network, make_fence, group, units
):
    """Neither those of compute hosts, nor programs of this host, nor the monitor, which would think it healthy."""
    owner, thief = units
    port = NEIGHBOURS[0]
    level = len(group.relative_to(_mount_of_control_groups()).parts)
    fence = make_fence(monitor=ControlGroup(group.stat().st_ino, level))
    fence.apply(admit("c1", "gpu", port=port))
    with network.listening(port, thief):
        assert network.ask("c1", port).startswith(thief.name), "as long as no daemon is known"
        fence.set_listeners(groups_of(units))
        assert network.ask("c1", port) == REFUSED
        assert network.ask("gpu", port, uid=NOBODY) == REFUSED
        assert network.ask("gpu", port, to="127.0.0.1", group=group) == REFUSED
    with network.listening(port, owner):
        assert network.ask("c1", port).startswith(owner.name)
        assert network.ask("gpu", port, uid=NOBODY).startswith(owner.name)
        assert network.ask("gpu", port, to="127.0.0.1", group=group).startswith(owner.name)
        assert network.ask("c2", port) == REFUSED
    assert network.ask("c1", OPEN_PORT) == answer(OPEN_PORT, "c1")


def test_a_connection_stays_when_a_daemon_of_another_port_comes_or_goes(network, fence, units):
    owner, _ = units
    groups = groups_of(units)
    fence.apply(admit("c1", port=NEIGHBOURS[0]))
    fence.set_listeners({NEIGHBOURS[0]: groups[NEIGHBOURS[0]]})
    with network.listening(NEIGHBOURS[0], owner):
        command = ("talk", GPU_HOST, str(NEIGHBOURS[0]), "40")
        talking = network._start("c1", *command)
        assert talking.stdout.readline().startswith(owner.name)
        fence.set_listeners(groups)
        assert network.listeners() == {(port, group.number) for port, group in groups.items()}
        fence.set_listeners({NEIGHBOURS[0]: groups[NEIGHBOURS[0]]})
        fence.set_listeners({})
        assert talking.communicate(timeout=PATIENCE)[0].strip() == "survived"


def test_no_daemon_opens_a_connection_from_the_port_of_another_one(network, fence, units):
    """Not even to a host that is admitted there, whose answers pass."""
    owner, thief = units
    fence.apply(admit("c1", port=NEIGHBOURS[0]))
    fence.set_listeners(groups_of(units))
    words = ("talk", ADDRESSES["c1"], str(OPEN_PORT), "0", str(NEIGHBOURS[0]))
    with network.listening(OPEN_PORT, host="c1"):
        assert network.run("gpu", *words, group=thief) == "TimeoutError"
        said = network.run("gpu", *words, group=owner)
    assert said.splitlines() == [f"c1:{OPEN_PORT} peer={GPU_HOST}", "survived"]


def test_the_fence_of_an_earlier_release_is_replaced_and_its_admissions_stay(network, make_fence):
    """It knew no daemons by their control groups."""
    set_of_then = "{ type ipv4_addr . inet_service; elements = { %s . %d } ; }"
    network.nft("add", "table", "inet", "gsaas_fence")
    element = set_of_then % (ADDRESSES["c1"], PER_LEASE)
    network.nft("add", "set", "inet", "gsaas_fence", "admitted", element)
    make_fence()
    assert network.admitted() == {(ADDRESSES["c1"], PER_LEASE)}
    assert network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1")
    assert network.ask("c2", PER_LEASE) == REFUSED


def test_a_monitor_that_was_started_anew_is_admitted_in_its_new_control_group(
    network, make_fence, group
):
    level = len(group.relative_to(_mount_of_control_groups()).parts)
    make_fence(monitor=ControlGroup(group.stat().st_ino + 1, level)).stop()
    assert network.ask("gpu", PER_LEASE, group=group) == REFUSED
    make_fence(monitor=ControlGroup(group.stat().st_ino, level))
    assert network.ask("gpu", PER_LEASE, group=group).startswith("gpu:20000")


def _mount_of_control_groups() -> Path:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return Path(next(line.split()[4] for line in mounts if " - cgroup2 " in line))


def test_an_own_admission_that_ends_cuts_the_hosts_own_connections(network, fence):
    fence.apply(admit("gpu"))
    with network.waiting("gpu", PER_LEASE) as local:
        fence.apply([])
        assert local.communicate(timeout=PATIENCE)[0].strip() == "ConnectionResetError"


def test_what_rodvr_translated_on_this_host_passes(network, fence):
    """A VM of the GPU host itself comes with its identity address, over rodvr1."""
    gpu = network.netns("gpu")
    script = (
        f"ip netns add {gpu}vm; ip -n {gpu} link add rodvr1 type veth peer name eth0 netns {gpu}vm;"
        f"ip -n {gpu} addr add 240.71.0.1/24 dev rodvr1; ip -n {gpu} link set rodvr1 up;"
        f"ip -n {gpu}vm addr add 240.71.0.7/24 dev eth0; ip -n {gpu}vm link set eth0 up;"
        f"ip -n {gpu}vm route add default via 240.71.0.1"
    )
    subprocess.run(["sh", "-ec", script], check=True)
    try:
        assert network.ask("gpuvm", PER_LEASE) == f"gpu:{PER_LEASE} peer=240.71.0.7"
    finally:
        subprocess.run(["ip", "netns", "del", f"{gpu}vm"], check=True)


def test_an_identity_address_from_the_wire_is_a_strangers(network, fence):
    for host, prefix in (("odd", "add"), ("odd", "del")):
        name = network.netns(host)
        subprocess.run(
            ["ip", "-n", name, "addr", prefix, "240.71.0.9/32", "dev", "gpu0"], check=True
        )
        if prefix == "add":
            gpu = network.netns("gpu")
            route = ["240.71.0.9/32", "via", ADDRESSES["odd"]]
            subprocess.run(["ip", "-n", gpu, "route", "add", *route], check=True)
            said = network.run("odd", "ask", GPU_HOST, str(PER_LEASE), "240.71.0.9")
            subprocess.run(["ip", "-n", gpu, "route", "del", *route], check=True)
            assert said == REFUSED


def test_one_host_has_a_limited_number_of_connections(network, make_fence):
    fence = make_fence(connections=2)
    fence.apply([*admit("c1", "c2"), *admit("c1", port=PER_GPU)])
    with network.waiting("c1", PER_LEASE), network.waiting("c1", PER_LEASE):
        assert network.ask("c1", PER_LEASE) == REFUSED
        assert network.ask("c2", PER_LEASE) == answer(PER_LEASE, "c2")
        assert network.ask("c1", PER_GPU) == answer(PER_GPU, "c1")
    until(lambda: network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1"), "a free place")


def test_the_fence_stays_when_the_monitor_ends_and_the_next_one_takes_it_over(network, make_fence):
    first = make_fence()
    first.apply(admit("c1"))
    with network.waiting("c1", PER_LEASE) as connected:
        first.stop()
        assert network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1")
        assert network.ask("c2", PER_LEASE) == REFUSED
        second = make_fence()
        assert second.report().admissions == frozenset(admit("c1"))
        second.apply([*admit("c1"), *admit("c2")])
        assert connected.poll() is None
    assert network.ask("c2", PER_LEASE) == answer(PER_LEASE, "c2")


def test_other_ports_are_enclosed_without_losing_anybody(network, fence):
    fence.apply(admit("c1"))
    with network.waiting("c1", PER_LEASE) as connected:
        fence.set_ports([(20000, 20999)])
        assert network.ask("c2", PER_GPU) == answer(PER_GPU, "c2")
        assert network.ask("c2", PER_LEASE) == REFUSED
        fence.set_ports([(8308, 8311), (20000, 20999)])
        assert network.ask("c2", PER_GPU) == REFUSED
        assert connected.poll() is None


def test_two_fences_on_one_host_do_not_fight(fence, make_fence):
    with pytest.raises(NetlinkRefused, match="second monitor"):
        make_fence()


def test_nobody_else_changes_the_table_and_other_tables_are_left_alone(
    network: Network, fence: Fence
):
    network.nft("add", "table", "inet", "mine")
    try:
        fence.apply(admit("c1"))
        with pytest.raises(subprocess.CalledProcessError):
            network.nft("flush", "table", "inet", "gsaas_fence")
        network.nft("flush", "ruleset")
        assert network.ask("c2", PER_LEASE) == REFUSED
        assert network.ask("c1", PER_LEASE) == answer(PER_LEASE, "c1")
    finally:
        network.nft("add", "table", "inet", "mine")
        network.nft("delete", "table", "inet", "mine")


def test_a_table_that_somebody_took_away_is_built_again(network, fence, monkeypatch):
    """As on kernels before 6.9, where tables have no owners."""
    monkeypatch.setattr(fence._table, "_flags", 0)
    fence._table.rebuild(fence._layout, Elements())
    fence.apply(admit("c1"))
    network.nft("flush", "chain", "inet", "gsaas_fence", "guard")
    assert network.ask("c2", PER_LEASE) == answer(PER_LEASE, "c2")
    fence.audit()
    assert network.ask("c2", PER_LEASE) == REFUSED
    network.nft("delete", "table", "inet", "gsaas_fence")
    fence.audit()
    assert network.admitted() == {(ADDRESSES["c1"], PER_LEASE)}


def test_thousands_are_admitted_in_one_transaction(network, fence):
    many = [Admission(f"10.9.{n // 250}.{n % 250 + 1}", 20000 + n % 1000) for n in range(4000)]
    fence.apply(many)
    assert fence.report().admissions == frozenset(many)
    fence.apply(many[:10])
    assert network.admitted() == {(a.address, a.port) for a in many[:10]}
