# SPDX-License-Identifier: Apache-2.0
"""A program in a guest that computes, what it says on the console, and what GSaaS and the kernel say meanwhile."""

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

from tests.openstack.bed import credentials, gsaas
from tests.openstack.bed.user_data import MASKED, NOT_GIVEN, REAL

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


def computed(said: str) -> None:
    """Fail unless the program in the guest has computed on both cGPUs, and could reach no others."""
    assert re.findall(r"^SAW (\w+)=(.*)$", said, re.MULTILINE) == [
        ("LLAMA_ARG_RPC", ",".join(MASKED))
    ], said
    results = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert [each["address"] for each in results] == list(MASKED), said
    assert all(each["right"] == each["products"] > 0 for each in results), said
    looked = re.findall(r"^(REACHED|REFUSED) (\S+)$", said, re.MULTILINE)
    assert looked == [("REFUSED", NOT_GIVEN), ("REFUSED", REAL)], said
