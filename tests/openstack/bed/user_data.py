# SPDX-License-Identifier: Apache-2.0
"""User data with a program that computes on two cGPUs of the CPU host, as a tenant would bring it: the file `FILE`."""

from __future__ import annotations

import textwrap

from gsaas.remoting.ggml import Ggml
from tests.openstack.bed import files, machines
from tests.openstack.bed.settings import DIR
from tests.openstack.bed.work import Unit
from tests.support import ggml

FILE = DIR / "compute.yaml"
MASKED = tuple(f"169.254.71.{number}:{Ggml.default_port}" for number in (1, 2))
NOT_GIVEN = f"169.254.71.3:{Ggml.default_port}"
REAL = f"{machines.gpu_address(machines.CPU_HOST)}:20000"
"""Where the daemon of some cGPU on the CPU host is."""
COMPUTE = f"""\
#cloud-config
runcmd:
  - |
    . /etc/profile.d/gsaas.sh
    {{
      env | sed -n 's/^LLAMA_/SAW LLAMA_/p'
      python3 - <<'END'
{textwrap.indent(ggml.BARE.read_text(), "    ")}
    END
      for address in {NOT_GIVEN} {REAL}; do
        nc -z -w 5 ${{address%:*}} ${{address#*:}} && echo "REACHED $address" || echo "REFUSED $address"
      done
    }} >/run/heard 2>&1
    cat /run/heard >/dev/console
    set -- $(sha256sum </run/heard) $(base64 -w0 /run/heard)
    for _ in 1 2 3 4 5 6; do
      printf '\\nHEARD %s %s\\n' "$1" "$3" >/dev/console
      sleep 5
    done
"""
"""The program computes on all cGPUs of its lease; then the guest looks whether it reaches others. Other programs write
to the console at the same time, so it tells what it saw several times more, each with a check sum.
"""


def units() -> list[Unit]:
    return [Unit("user data", prepare=write)]


def write() -> None:
    """Write it for everybody."""
    files.write(FILE, COMPUTE, mode=0o644)
