# SPDX-License-Identifier: Apache-2.0
"""A client of GSaaS's in a guest, what it says on the guest's console, and what GSaaS and the kernel say meanwhile."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import subprocess
from typing import Any

from tests.openstack.bed import credentials, gsaas, machines

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
"""User data with a client, as a tenant would bring it. Other programs write to the console at the same time, so it
tells what it saw several times, each with a check sum.
"""

_HEARD = re.compile(r"^HEARD (\S+) (\S+)$", re.MULTILINE)


def run(user: str, *words: str) -> Any:
    """Run `gsaas` as *user* of clouds.yaml; return what it answers."""
    return json.loads(output(user, "gsaas", *words, "-f=json"))


def output(user: str, program: str, *words: str) -> str:
    """Run a program of tenants as *user* of clouds.yaml; return what it prints."""
    environment = {
        "PATH": os.environ["PATH"],
        "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS),
        "OS_CLOUD": user,
    }
    command = [str(gsaas.program(program)), *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    for checksum, encoded in _HEARD.findall(console.replace("\r", "")):
        with contextlib.suppress(binascii.Error):
            said = base64.b64decode(encoded, validate=True)
            if hashlib.sha256(said).hexdigest() == checksum:
                return said.decode()
    return None


def environment(said: str) -> dict[str, str]:
    """What the client in the guest found in its environment."""
    return dict(re.findall(r"^SAW (\w+)=(.*)$", said, re.MULTILINE))


def answers(said: str) -> dict[str, dict[str, str]]:
    """What the client in the guest was answered, by the address that it asked; nothing if nobody answered."""
    asked = re.findall(r"^ASKED (\S+): *(.*?)\s*$", said, re.MULTILINE)
    return {address: json.loads(answer) if answer else {} for address, answer in asked}
