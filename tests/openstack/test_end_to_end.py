# SPDX-License-Identifier: Apache-2.0
"""What a tenant sees: one command, a VM with cGPUs, and nothing of it left after another.

Everything is real here: Keystone, Nova, Neutron, the message bus, a guest in QEMU that runs cloud-init, and GSaaS's
own processes. The GPUs alone are simulated: each answers with its name.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

from tests.openstack.bed import credentials, gsaas, machines, settings
from tests.openstack.servers import Servers

pytestmark = [pytest.mark.openstack, pytest.mark.timeout(1800)]

TENANT = settings.TENANTS[0]
MASKED = ("169.254.71.1:8308", "169.254.71.2:8308")
NOT_GIVEN = "169.254.71.3:8308"
REAL = [f"{machines.gpu_address(host)}:8308" for host in gsaas.GPUS]
ASK = f"""\
#cloud-config
runcmd:
  - |
    . /etc/profile.d/gsaas.sh
    {{
      env | sed -n 's/^RCUDA_/SAW RCUDA_/p'
      for address in {" ".join([*MASKED, NOT_GIVEN, *REAL])}; do
        echo "ASKED $address: $(nc -w 5 ${{address%:*}} ${{address#*:}} </dev/null)"
      done
    }} >/run/heard 2>&1
    set -- $(sha256sum </run/heard) $(base64 -w0 /run/heard)
    for _ in 1 2 3 4 5 6; do
      printf '\\nHEARD %s %s\\n' "$1" "$3" >/dev/console
      sleep 5
    done
"""
"""A client in the guest, as a tenant would bring it. Other programs write to the console at the same time, so it tells
what it saw several times, each with a check sum.
"""

HEARD = re.compile(r"^HEARD (\S+) (\S+)$", re.MULTILINE)

Gsaas = Callable[..., Any]
Eventually = Callable[[Callable[[], Any]], Any]


def run(user: str, *words: str) -> Any:
    """Run `gsaas` as *user* of clouds.yaml; return what it answers."""
    environment = {
        "PATH": os.environ["PATH"],
        "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS),
        "OS_CLOUD": user,
    }
    command = [str(gsaas.program("gsaas")), *words, "-f=json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def remains(admin: Connection, tenant: Connection) -> Iterator[Servers]:
    """Told of servers, sees at the end that nothing is left of them in the cloud."""
    servers = Servers(admin, tenant)
    yield servers
    assert servers.remains() == []


@pytest.fixture
def launch(remains: Servers) -> Iterator[Gsaas]:
    """Launch a lease as the tenant; it is terminated when the test ends, if the test has not.

    Only then is it seen what remains.
    """
    launched: list[str] = []

    def launch(flavor: str, *words: str) -> dict[str, Any]:
        place = (f"-image={settings.IMAGE}", f"-flavor={flavor}", f"-network={settings.NETWORK}")
        lease = run(TENANT, "-l", *words, *place)
        launched.append(lease["id"])
        return lease

    yield launch
    for lease_id in launched:
        if run(TENANT, "show", f"-id={lease_id}")["status"] != "RELEASED":
            run(TENANT, "-t", f"-id={lease_id}")


def shown(lease_id: str, user: str = "admin") -> dict[str, Any]:
    return run(user, "show", f"-id={lease_id}")


def mappings() -> int:
    """How many masked addresses the kernel of the real compute host translates."""
    listed = json.loads(
        subprocess.run(
            ["nft", "-j", "list", "map", "ip", "rodvr", "real"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    return sum(len(entry["map"].get("elem", ())) for entry in listed["nftables"] if "map" in entry)


def holders() -> set[str]:
    """The leases that hold something of a GPU."""
    return {lease for gpu in run("admin", "gpus")["gpus"] for lease in gpu["leases"]}


def heard(console: str) -> str | None:
    """Return what the client in the guest says on its console, if it has arrived whole at least once."""
    for checksum, encoded in HEARD.findall(console.replace("\r", "")):
        with contextlib.suppress(binascii.Error):
            said = base64.b64decode(encoded, validate=True)
            if hashlib.sha256(said).hexdigest() == checksum:
                return said.decode()
    return None


def answers(said: str) -> dict[str, dict[str, str]]:
    """What the client in the guest was answered, by the address that it asked; nothing if nobody answered."""
    asked = re.findall(r"^ASKED (\S+): *(.*?)\s*$", said, re.MULTILINE)
    return {address: json.loads(answer) if answer else {} for address, answer in asked}


def test_a_tenant_gets_a_vm_with_its_gpus_and_gives_everything_back(
    launch: Gsaas,
    remains: Servers,
    tenant: Connection,
    eventually: Eventually,
    tmp_path: Path,
):
    client = tmp_path / "client.yaml"
    client.write_text(ASK)
    before = mappings()

    lease = launch(
        settings.FLAVOR,
        *("-ncgpus=2", "-poolmem=2048", "-mode=shared", "-name=training"),
        f"-userdata={client}",
    )
    assert lease["status"] == "ACTIVE"
    assert tuple(device["masked_address"] for device in lease["devices"]) == MASKED
    assert lease["id"] in holders()
    assert mappings() == before + 2
    server = tenant.compute.get_server(lease["server"]["id"])
    assert (server.name, server.status) == ("training", "ACTIVE")
    remains.watch(server)

    said = eventually(lambda: heard(remains.console(server)))
    saw = dict(re.findall(r"^SAW (\w+)=(.*)$", said, re.MULTILINE))
    assert saw == {
        "RCUDA_DEVICE_COUNT": "2",
        "RCUDA_DEVICE_0": "169.254.71.1:0",
        "RCUDA_DEVICE_1": "169.254.71.2:0",
        "RCUDA_RESERVED_GPU_MEMORY_0": "2048",
        "RCUDA_RESERVED_GPU_MEMORY_1": "2048",
    }
    devices = shown(lease["id"])["devices"]
    answered = answers(said)
    for device in devices:
        answer = answered.pop(device["masked_address"])
        assert (answer["gpu"], answer["host"]) == (device["gpu_uuid"], device["gpu_host"])
    assert answered == {NOT_GIVEN: {}, **{address: {} for address in REAL}}

    assert run(TENANT, "-t", f"-id={server.id}")["status"] == "RELEASED"
    assert mappings() == before
    # Nova shows a server that it has deleted for another moment.
    assert eventually(lambda: tenant.compute.find_server(server.id) is None)
    assert lease["id"] not in holders()


def test_a_local_vm_runs_on_the_host_of_its_gpus(
    launch: Gsaas, remains: Servers, tenant: Connection
):
    lease = launch(settings.FLAVOR, "-ncgpus=2", "-poolmem=1024", "-mode=shared", "-locality=local")
    remains.watch(tenant.compute.get_server(lease["server"]["id"]))
    seen = shown(lease["id"])
    assert seen["server"]["host"] == settings.REAL_HOST
    assert {device["gpu_host"] for device in seen["devices"]} == {settings.REAL_HOST}
    assert run(TENANT, "-t", f"-id={lease['id']}")["status"] == "RELEASED"


def test_a_vm_deleted_with_nova_gives_its_gpus_back(
    launch: Gsaas, remains: Servers, tenant: Connection, eventually: Eventually
):
    lease = launch(settings.FAKE_FLAVOR, "-ncgpus=1", "-poolmem=512", "-mode=shared", "-nowait")
    seen = eventually(
        lambda: (seen := shown(lease["id"]))["server"]["host"] and seen["server"]["id"] and seen
    )
    server = tenant.compute.get_server(seen["server"]["id"])
    host, tap = seen["server"]["host"], remains.watch(server)
    machines.add_tap(host, tap)
    try:
        eventually(lambda: shown(lease["id"])["status"] == "ACTIVE")
        tenant.compute.delete_server(server)
        eventually(lambda: shown(lease["id"])["status"] == "RELEASED")
        assert lease["id"] not in holders()
    finally:
        machines.remove_tap(host, tap)
