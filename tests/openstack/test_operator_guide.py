# SPDX-License-Identifier: Apache-2.0
"""The operator's guide, followed word by word: its commands are typed, its files are installed, as they stand there.

Three machines with systemd have nothing of GSaaS at first: a controller beside the cloud's Keystone, Nova, MariaDB and
RabbitMQ, a compute host, and a GPU host. That one has no NVIDIA driver and no rCUDA, so its GPUs are declared, and its
daemon is a stand-in that names its GPU.

The tests go on from each other, in the order of the guide.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.openstack import guide
from tests.openstack.bed import (
    booted,
    commands,
    credentials,
    database,
    gsaas,
    machines,
    messages,
    nova,
    rest,
    settings,
    venv,
)
from tests.openstack.bed.booted import Machine
from tests.openstack.bed.errors import BedError
from tests.openstack.servers import Servers

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
PACKAGES = booted.FOLDER / "packages"
"""What ./dev package builds; nothing else of this repository gets onto the machines."""
CONSTRAINTS = ROOT / "tests" / "constraints" / "upper-constraints-2026.1.txt"
"""OpenStack's, of its newest release that has a branch."""
TOOLS = booted.FOLDER / "tools"
CONTROLLER = "controller"
COMPUTE_HOST = settings.FAKE_HOSTS[0]
"""The only one that gets an endpoint. Its hypervisor pretends, so the test makes the taps."""
GPU_HOST = machines.GPU_HOSTS[0]
DECLARED = "gpu01"
"""What etc/gsaas/gpu-host.toml calls it."""
TENANT = settings.TENANTS[0]
FLAVOR = f"on-{COMPUTE_HOST}"
TAKE = f"gsaas alloc -ncgpus=1 -poolmem=512 -mode=shared -on={COMPUTE_HOST}"
OLD, NEW = "gsaas/cli/sim.py", "gsaas/of_the_new_release.py"
OF_CONTROLLERS = {"alembic", "flask", "keystonemiddleware", "openstacksdk", "oslo-db", "sqlalchemy"}

STEP_1 = "1. On every machine: the program"
FOR_EVERYBODY, FOR_CONTROLLERS, FOR_COMPUTE_HOSTS, FOR_GPU_HOSTS = range(4)
"""Its blocks."""
IN_ONE_COMMAND = "The rest, in one command on each machine"

API = f"http://{settings.ADDRESS}:9870"
"""There is no proxy, and no TLS."""
PLACEHOLDERS = {
    "PACKAGES": str(PACKAGES),
    "UPPER_CONSTRAINTS": str(booted.FOLDER / CONSTRAINTS.name),
    "PASSWORD": secrets.token_hex(8),
    "--bus=controller": f"--bus=controller:{settings.RABBITMQ_PORT} "
    f"--database=controller:{settings.MARIADB_PORT}",
    "https://gpu.example.org": API,
    "https://keystone.example.org/v3": settings.KEYSTONE_URL,
    "@controller:5672": f"@controller:{settings.RABBITMQ_PORT}",
    "@controller/": f"@controller:{settings.MARIADB_PORT}/",
    "192.0.2.": f"{machines.NETWORKS[machines.GPU_DEVICE]}.",
    "mytenant": TENANT,
    "IMAGE": settings.IMAGE,
    "FLAVOR": FLAVOR,
    "NETWORK": settings.NETWORK,
    "NAME": DECLARED,
}
WITHOUT_A_DRIVER = """
[monitor]
source = declared
[daemons]
own_devices = false
"""
RCUDAD = """\
#!/bin/sh
# rCUDAd -i -p PORT -n CLIENTS
exec /usr/bin/python3 {stand_in} "$3" "$CUDA_VISIBLE_DEVICES"
"""
ASK = """\
exec 3<>/dev/tcp/{address}/{port} && cat <&3
"""
"""What connects to a daemon: it names its GPU."""

Eventually = Callable[[Callable[[], Any]], Any]


def tool(name: str, *command: str) -> None:
    """A program as the controller of a cloud has it, which knows where this cloud's servers are."""
    path = TOOLS / name
    path.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
    path.chmod(0o755)


def prepare() -> None:
    """What there is before the operator comes: the packages, the constraints, and the tools of a controller."""
    booted.FOLDER.mkdir(exist_ok=True)
    commands.run(ROOT / "dev", "package", "--output", PACKAGES, env=os.environ)
    # To compile it takes a minute of a processor: the machines find it in the cache of this machine's pip.
    wheel = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", booted.FOLDER)
    commands.run(*wheel, "uwsgi", env=os.environ)
    shutil.copy(CONSTRAINTS, booted.FOLDER)
    TOOLS.mkdir()
    for name in ("mariadb", "mariadb-dump"):
        tool(
            name, f"/usr/bin/{name}", "--no-defaults", "--user=root", f"--socket={database.SOCKET}"
        )
    tool("rabbitmqctl", *messages.CONTROL)
    tool("openstack", venv.program("openstack"))


def build_next_release() -> None:
    """Add the wheel of a service that has one module more and one less."""
    tree = booted.FOLDER / "next"
    with (ROOT / "build" / "package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests build it anew
        shutil.copytree(ROOT / "build" / "package", tree)
    settings_file = tree / "setup.cfg"
    text = settings_file.read_text()
    assert "\nversion = 1.0.0\n" in text
    settings_file.write_text(text.replace("\nversion = 1.0.0\n", "\nversion = 1.0.1\n"))
    (tree / OLD).unlink()
    (tree / NEW).touch()
    build = (sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", PACKAGES)
    commands.run(*build, tree, env=os.environ)


class Operator:
    """Somebody who follows the guide."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}

    def boot(self, name: str, **options: Any) -> Machine:
        self.machines[name] = Machine(name, **options)
        self.machines[name].start()
        return self.machines[name]

    def type(self, machine: Machine, script: str, user: str = "admin", **more: str) -> str:
        """Type *script* with the placeholders filled in, *more* of them first."""
        cloud = {"OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS), "OS_CLOUD": user}
        return machine.type(guide.fill_in(script, more | PLACEHOLDERS), cloud)

    def install(self, machine: Machine, heading: str, more: str = "") -> None:
        """Install the configuration files of a section, by the command that step 1 has for them."""
        *_, command = guide.blocks(STEP_1)
        for path, text in guide.files(heading).items():
            name = Path(path).name
            machine.write(f"/root/{name}", guide.fill_in(text, PLACEHOLDERS) + more)
            machine.type(command.replace("gsaas.conf", name))

    def follow(self, machine: Machine, heading: str, *, only: int | None = None) -> None:
        """Type all blocks of a section, or one; what is for an administrator of the cloud, on the controller."""
        chosen = guide.blocks(heading)
        for block in chosen if only is None else [chosen[only]]:
            for command in guide.commands(block):
                ours = command.startswith("gsaas ")
                self.type(self.machines[CONTROLLER] if ours else machine, command)


@pytest.fixture(scope="module")
def operator(cloud: None) -> Iterator[Operator]:
    """Comes to a cloud without GSaaS; leaves it with its own again."""
    openstack = rest.cloud()
    with ExitStack() as leaving:
        leaving.callback(gsaas.deploy)
        gsaas.withdraw((COMPUTE_HOST, GPU_HOST))
        leaving.callback(openstack.call, "DELETE", "compute", add_flavor(openstack))
        leaving.callback(booted.remove)
        prepare()
        leaving.enter_context(packages_stay())
        yield Operator()


@contextmanager
def packages_stay() -> Iterator[None]:
    """Have every apt-get of this machine wait: what is installed here is what the booted machines find installed."""
    with Path("/var/lib/dpkg/lock-frontend").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def add_flavor(cloud: rest.Cloud) -> str:
    """Have a flavor whose servers land on our compute host; return its path."""
    made = cloud.ensure("compute", "flavors", {"name": FLAVOR, "ram": 64, "vcpus": 1, "disk": 1})
    path = f"flavors/{made['id']}"
    specs = {"extra_specs": {"capabilities:hypervisor_hostname": COMPUTE_HOST}}
    cloud.call("POST", "compute", f"{path}/os-extra_specs", specs)
    return path


@pytest.fixture(scope="module")
def installed(operator: Operator) -> Machine:
    """A machine after the first commands of step 1, switched off, that the others begin with."""
    try:
        machine = operator.boot("installed")
    except BedError as error:
        pytest.skip(f"no machine with systemd can be booted here: {error}")
    operator.follow(machine, STEP_1, only=FOR_EVERYBODY)
    machine.stop()
    return machine


@pytest.fixture(scope="module")
def controller(operator: Operator, installed: Machine, eventually: Eventually) -> Machine:
    local = f"{settings.ADDRESS} {CONTROLLER}\n"
    machine = operator.boot(CONTROLLER, like=installed, hosts=local, tools=TOOLS)
    operator.follow(machine, STEP_1, only=FOR_CONTROLLERS)
    operator.follow(machine, "2. Once: database, message bus, Keystone")
    operator.install(machine, "3. On the controllers")
    operator.follow(machine, "3. On the controllers")
    ask = guide.said("3. On the controllers", f"curl {API}/healthcheck")
    eventually(lambda: '{"status":"ok"}' in machine.type(f"{ask} || true"))
    operator.follow(machine, "4. Nova")
    return machine


def _beyond(operator: Operator, installed: Machine, name: str, host: str, block: int) -> Machine:
    """A machine in the network of *host*, after *block* of step 1; that network reaches no package index."""
    before = operator.boot(f"{name}-installed", like=installed)
    operator.follow(before, STEP_1, only=block)
    before.stop()
    bus = f"{machines.management_address(settings.REAL_HOST)} {CONTROLLER}\n"
    return operator.boot(name, namespace=machines.namespace(host), like=before, hosts=bus)


@pytest.fixture(scope="module")
def compute_host(operator: Operator, controller: Machine, installed: Machine) -> Machine:
    machine = _beyond(operator, installed, COMPUTE_HOST, COMPUTE_HOST, FOR_COMPUTE_HOSTS)
    operator.install(machine, "5. On every compute host")
    operator.follow(machine, "5. On every compute host", only=0)
    return machine


@pytest.fixture(scope="module")
def gpu_host(operator: Operator, controller: Machine, installed: Machine) -> Machine:
    machine = _beyond(operator, installed, DECLARED, GPU_HOST, FOR_GPU_HOSTS)
    stand_in = "/opt/rCUDA/bin/stand_in.py"
    machine.write(stand_in, (ROOT / "tests" / "support" / "fake_daemon.py").read_text())
    machine.write("/opt/rCUDA/bin/rCUDAd", RCUDAD.format(stand_in=stand_in), 0o755)
    inventory = (ROOT / "etc" / "gsaas" / "gpu-host.toml").read_text()
    machine.write("/etc/gsaas/inventory.toml", guide.fill_in(inventory, PLACEHOLDERS))
    operator.install(machine, "6. On every GPU host", more=WITHOUT_A_DRIVER)
    operator.follow(machine, "6. On every GPU host")
    return machine


def found(controller: Machine) -> dict[str, set[str]]:
    """What `gsaas-manage check` says: level -> parts."""
    findings = json.loads(controller.type("gsaas-manage check -f json || true"))
    return {
        level: {finding["part"] for finding in findings if finding["level"] == level}
        for level in ("fail", "warn")
    }


def told(operator: Operator, line: str, user: str = TENANT) -> Any:
    return json.loads(operator.type(operator.machines[CONTROLLER], f"{line} -f json", user))


def test_the_bed_is_set_as_step_4_says():
    """So that what is missing in it would be missing in the guide."""
    section = guide.section("4. Nova")
    assert nova.RULES in section
    for name, options in nova.common("any", "any").items():
        if name in ("notifications", "oslo_messaging_notifications"):
            for option, value in options.items():
                assert f"{option} = {value}" in section


def test_the_check_up_finds_all_well(
    controller: Machine, compute_host: Machine, gpu_host: Machine, eventually: Eventually
):
    # Of real1, which has no endpoint.
    eventually(
        lambda: found(controller) == {"fail": set(), "warn": {"compute hosts", "bus signatures"}}
    )


def test_every_machine_has_what_openstack_constrains_and_agents_nothing_of_controllers(
    controller: Machine, compute_host: Machine, gpu_host: Machine
):
    constrained = releases(CONSTRAINTS.read_text())
    for machine in (controller, compute_host, gpu_host):
        installed = releases(machine.type("/opt/gsaas/bin/pip freeze --exclude pip"))
        assert installed["gsaas"] == "1.0.0"
        common = installed.keys() & constrained.keys()
        assert len(common) > 30
        assert {name: installed[name] for name in common} == {
            name: constrained[name] for name in common
        }
        assert (installed.keys() >= OF_CONTROLLERS) is (machine is controller)
        assert not installed.keys() & OF_CONTROLLERS or machine is controller


def releases(text: str) -> dict[str, str]:
    """Return distribution -> release of lines of `pip freeze`, or of constraints for this Python."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate():
                name = canonicalize_name(requirement.name)
                found[name] = str(requirement.specifier).lstrip("=")
    return found


def test_a_tenant_launches_and_ends(
    operator: Operator,
    controller: Machine,
    compute_host: Machine,
    gpu_host: Machine,
    tenant: Connection,
    servers: Servers,
    request: pytest.FixtureRequest,
    eventually: Eventually,
):
    _, _, block = guide.blocks("7. Try it")
    launch, end = block.rsplit("\n", 1)
    before = {server.id for server in tenant.compute.servers()}

    def booting() -> list[Any]:
        """The new server, once it has a port; raises `BedError` if the launch is refused."""
        if launching.done():
            launching.result()
        return [
            server
            for server in tenant.compute.servers()
            if server.id not in before and list(tenant.network.ports(device_id=server.id))
        ]

    with ThreadPoolExecutor() as beside:
        launching = beside.submit(operator.type, controller, launch)
        (server,) = eventually(booting)
        tap = servers.watch(server)
        request.addfinalizer(lambda: machines.remove_tap(COMPUTE_HOST, tap))
        machines.add_tap(COMPUTE_HOST, tap)
        assert server.id in launching.result()
    rules = compute_host.type("nft list map ip rodvr real")
    assert f"169.254.71.1 . 8308 : {machines.gpu_address(GPU_HOST)} . 830" in rules
    operator.type(controller, end, TENANT)
    assert "elements" not in compute_host.type("nft list map ip rodvr real")


def test_programs_of_a_compute_host_reach_what_was_translated_for_them_alone(
    operator: Operator, compute_host: Machine, gpu_host: Machine
):
    taken = told(operator, f"{TAKE} -uid=any")["lease"]["id"]
    (seen,) = told(operator, f"gsaas show {taken}", "admin")["devices"]
    masked, real = (
        ASK.format(address=address, port=port)
        for address, port in (
            seen["masked_address"].split(":"),
            (machines.gpu_address(GPU_HOST), seen["real_address"].rpartition(":")[2]),
        )
    )
    assert seen["gpu_uuid"] in compute_host.type(masked)
    assert seen["gpu_uuid"] in compute_host.type(real)
    operator.follow(compute_host, "Leases without a VM")
    assert seen["gpu_uuid"] in compute_host.type(masked)
    with pytest.raises(BedError, match="Connection refused"):
        compute_host.type(real)
    told(operator, f"gsaas release {taken}")


def test_services_that_are_killed_start_again(
    controller: Machine, compute_host: Machine, gpu_host: Machine, eventually: Eventually
):
    services = {
        "gsaas-api": controller,
        "gsaas-engine": controller,
        "gsaas-rodvr": compute_host,
        "gsaas-monitor": gpu_host,
    }

    def said(field: str) -> dict[str, str]:
        return {name: machine.unit(name, field) for name, machine in services.items()}

    before = said("MainPID")
    for name, machine in services.items():
        machine.type(f"systemctl kill --signal=KILL --kill-whom=main {name}")
    eventually(lambda: not said("MainPID").items() & before.items())
    eventually(lambda: set(said("ActiveState").values()) == {"active"})


def test_daemons_outlive_their_monitor(gpu_host: Machine):
    before = daemons(gpu_host)
    assert len(before) == 2
    gpu_host.type("systemctl restart gsaas-monitor")
    assert daemons(gpu_host) == before


def daemons(gpu_host: Machine) -> list[str]:
    """Their process ids; the shell that asks is none of them."""
    return gpu_host.type("pgrep -f '[s]tand_in.py' || true").split()


def test_a_backup_brings_back_what_was_there(
    operator: Operator,
    controller: Machine,
    compute_host: Machine,
    gpu_host: Machine,
    eventually: Eventually,
):
    """Who came later has neither lease nor GPU."""
    eventually(lambda: listed(operator) == [])
    kept = told(operator, TAKE)["lease"]["id"]
    dump, stop, restore, start = guide.blocks("Backups")
    operator.type(controller, dump)
    told(operator, TAKE)
    assert translated(compute_host) == 2
    operator.type(controller, stop)
    operator.type(controller, restore)
    eventually(lambda: translated(compute_host) == 1)
    operator.type(controller, start)
    assert [lease["id"] for lease in eventually(lambda: listed(operator))] == [kept]
    told(operator, f"gsaas release {kept}")


def translated(compute_host: Machine) -> int:
    """How many masked addresses programs of this host may use."""
    return compute_host.type("nft list map ip rodvr local").count("169.254.")


def listed(operator: Operator) -> list[Any] | None:
    """The tenant's leases; None as long as the API does not answer."""
    try:
        return told(operator, "gsaas list")
    except BedError:
        return None


def test_an_update_brings_the_new_release_and_nothing_of_the_old(
    operator: Operator, controller: Machine
):
    build_next_release()
    operator.type(controller, guide.said("Updating", "systemctl stop gsaas-api gsaas-engine"))
    operator.follow(controller, "Updating")
    operator.type(controller, guide.said("Updating", "gsaas-manage db upgrade"))
    operator.type(controller, guide.said("Updating", "systemctl start gsaas-api gsaas-engine"))
    assert not found(controller)["fail"]
    packages = "/opt/gsaas/lib/python3*/site-packages"
    there = controller.type(f"cd {packages}; ls {OLD} {NEW} 2>/dev/null || true")
    assert there.split() == [NEW]


def test_quotas_that_keystone_keeps_hold(
    operator: Operator, controller: Machine, gpu_host: Machine, eventually: Eventually
):
    (quotas,) = guide.fenced("Quotas")
    controller.type(
        f"cat >>/etc/gsaas/gsaas.conf <<'GSAAS'\n{guide.fill_in(quotas, PLACEHOLDERS)}\nGSAAS"
    )
    operator.follow(controller, "Quotas")
    eventually(lambda: listed(operator) is not None)
    with pytest.raises(BedError, match="9 cGPUs asked for, 0 of at most 8 in use"):
        operator.type(controller, "gsaas alloc -ncgpus=9 -poolmem=64 -mode=shared", TENANT)


def test_gsaas_is_taken_off_its_hosts(
    operator: Operator, controller: Machine, compute_host: Machine, gpu_host: Machine
):
    operator.follow(compute_host, "To take GSaaS off a compute host")
    assert "rodvr" not in compute_host.type("nft list tables; ip -brief link")
    operator.follow(gpu_host, "To take GSaaS off a GPU host")
    assert "gsaas" not in gpu_host.type("nft list tables")
    assert daemons(gpu_host) == []


def test_the_same_machines_are_made_by_one_command_on_each(
    operator: Operator,
    controller: Machine,
    compute_host: Machine,
    gpu_host: Machine,
    request: pytest.FixtureRequest,
    eventually: Eventually,
):
    """What was made by hand, without keys, is in the way: it is moved away first. Its accounts stay as they are."""
    make, give, of_gpu_host, of_compute_host, _ = guide.blocks(IN_ONE_COMMAND)
    names = {"gpu1": DECLARED, "compute1": COMPUTE_HOST}
    controller.type("mv /etc/gsaas/gsaas.conf /etc/by-hand.conf")
    known = (
        f'{of}_password = "{PLACEHOLDERS["PASSWORD"]}"' for of in ("bus", "database", "keystone")
    )
    controller.write("/etc/gsaas/setup-controller.toml", "\n".join(known), 0o600)
    assert "left to do" not in operator.type(controller, make)
    assert set(outcomes(operator, controller, f"{make} -f json")) == {"unchanged"}
    operator.type(controller, give, **names)
    request.addfinalizer(lambda: forget_accounts(controller, names.values()))

    gpu_host.type("rm /etc/gsaas/gsaas-monitor.conf")
    gpu_host.write("/etc/gsaas/gsaas-monitor.conf.d/own.conf", WITHOUT_A_DRIVER)
    compute_host.type("rm /etc/gsaas/gsaas-rodvr.conf")
    hosts = (gpu_host, DECLARED, of_gpu_host), (compute_host, COMPUTE_HOST, of_compute_host)
    for machine, name, block in hosts:
        given = controller.type(f"cat /root/{name}.toml")
        machine.write(f"/root/{name}.toml", given, 0o600)
        *_, command = guide.commands(block)  # the package that the first installs is there
        assert "left to do" not in operator.type(machine, command, **names)
        assert set(outcomes(operator, machine, f"{command} -f json", **names)) == {"unchanged"}

    operator.type(controller, f"gsaas hosts -enable={DECLARED}")
    eventually(lambda: not found(controller)["fail"])
    assert "bus signatures" not in found(controller)["warn"]
    taken = told(operator, TAKE)["lease"]["id"]
    (seen,) = told(operator, f"gsaas show {taken}", "admin")["devices"]
    address, port = seen["masked_address"].split(":")
    reached = ASK.format(address=address, port=port)
    assert seen["gpu_uuid"] in compute_host.type(reached)
    told(operator, f"gsaas release {taken}")


def outcomes(operator: Operator, machine: Machine, line: str, **more: str) -> list[str]:
    """What becomes of each step."""
    return [step["outcome"] for step in json.loads(operator.type(machine, line, **more))]


def forget_accounts(controller: Machine, hosts: Iterable[str]) -> None:
    """Take away the accounts of *hosts* on the message bus, which the bed does not know."""
    for host in hosts:
        controller.type(f"rabbitmqctl delete_user gsaas-{host}")
