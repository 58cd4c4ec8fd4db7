# SPDX-License-Identifier: Apache-2.0
"""An endpoint in a process of the user nobody that has only CAP_NET_ADMIN. It is run as root and drops the rest.

It prints a JSON line after each step, and takes each step when it reads a line:
bind VM 1 to the first GPU host, move it to the second, tear down.
"""

import ctypes
import json
import os
import struct
import sys
from pathlib import Path

from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import G1, G2, A, binding

NOBODY = 65534
CAP_NET_ADMIN = 12
PR_SET_KEEPCAPS, CAPABILITY_VERSION_3 = 8, 0x20080522


def drop_privileges() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    assert libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    only = 1 << CAP_NET_ADMIN
    sets = struct.pack("=6I", only, only, 0, 0, 0, 0)
    assert libc.capset(header, sets) == 0, os.strerror(ctypes.get_errno())


def effective_capabilities() -> int:
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    return int(status["CapEff"], 16)


def write_line(**facts: object) -> None:
    print(json.dumps(facts), flush=True)  # noqa: T201 - read by the test


def main() -> None:
    endpoint = Endpoint("cmp", DatapathConfig("gpu0"))
    # Once with all privileges, so that every module is loaded: the interpreter's own files may be
    # unreadable for the user nobody.
    endpoint.start()
    endpoint.replace([binding("vm1", {A: G1})])
    endpoint.teardown()
    drop_privileges()
    endpoint.start()
    report = endpoint.replace([binding("vm1", {A: G1})]).to_dict()
    write_line(uid=os.getuid(), capabilities=effective_capabilities(), report=report)
    sys.stdin.readline()
    write_line(report=endpoint.apply(binding("vm1", {A: G2})).to_dict())
    sys.stdin.readline()
    endpoint.teardown()
    write_line(done=True)


if __name__ == "__main__":
    main()
