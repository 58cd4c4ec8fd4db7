# SPDX-License-Identifier: Apache-2.0
"""What programs that compute through ggml's RPC pay for RODVR: rate and latency of calls, and copies.

The same servers are reached by plain routing and through masked addresses, in turns; the median of the rounds' ratios
counts. A call computes a small product on the CPU device of the server and fetches it. Then as many programs as there
are devices compute side by side, each on its own. The benchmark `daemons` says what `gsaas run` adds to the start of a
daemon.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from bench.laboratory import rodvr, routing_lab
from bench.report import machine, median
from gsaas.objects.address import Address
from tests.kernel.rodvr.lab import GPU_HOSTS, Lab
from tests.support import ggml
from tests.support.waiting import until

FIRST_PORT = 50052
DEVICES = 8
REAL = [f"{GPU_HOSTS['g1']}:{FIRST_PORT + number}" for number in range(DEVICES)]
MASKED = [f"169.254.71.{number + 1}:{FIRST_PORT}" for number in range(DEVICES)]
MAPPINGS = {
    Address.parse(masked): Address.parse(real) for masked, real in zip(MASKED, REAL, strict=True)
}
MEASURES = {
    "calls_per_s": "calls a second",
    "call_us": "microseconds of a call, median",
    "up_mb_s": "MiB/s to the device",
    "down_mb_s": "MiB/s from the device",
}
SIDE_BY_SIDE = "calls a second of all programs side by side"
AT_LEAST = {"calls_per_s", "up_mb_s", "down_mb_s"}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 7
    calls: int = 1500
    copies: int = 8


QUICK = Size(rounds=1, calls=20, copies=1)


def run(quick: bool = False) -> dict[str, Any]:
    """Return the medians of both paths, and of the ratios of masked and plain path."""
    size = QUICK if quick else Size()
    taken: dict[str, dict[str, list[float]]] = {
        path: {name: [] for name in (*MEASURES, SIDE_BY_SIDE)} for path in ("plain", "masked")
    }
    with _servers() as lab, rodvr(lab, MAPPINGS):
        for turn in range(size.rounds):
            paths = [("plain", REAL), ("masked", MASKED)]
            for path, addresses in paths if turn % 2 else reversed(paths):
                _round(lab, addresses, size, taken[path])
    ratios = {
        name: median(
            [m / p for m, p in zip(taken["masked"][name], taken["plain"][name], strict=True)]
        )
        for name in taken["plain"]
    }
    texts = {**MEASURES, SIDE_BY_SIDE: f"{SIDE_BY_SIDE}, {DEVICES} devices"}
    return {
        "bench": "compute",
        "machine": machine(),
        "rows": [
            {
                "measure": text,
                "plain_routing": median(taken["plain"][name]),
                "gsaas": median(taken["masked"][name]),
                "ratio": ratios[name],
            }
            for name, text in texts.items()
        ],
        "reach": [
            {
                "what": f"{text}, of plain routing",
                "value": ratios[name],
                "bound": "<= 1.10" if name == "call_us" else ">= 0.95",
            }
            for name, text in texts.items()
        ],
    }


def _round(lab: Lab, addresses: Sequence[str], size: Size, taken: dict[str, list[float]]) -> None:
    (program,) = _programs(lab, addresses[:1], size)
    for name in MEASURES:
        taken[name].append(program[name])
    side_by_side = _programs(lab, addresses, replace(size, copies=0))
    rates = [program["calls_per_s"] for program in side_by_side]
    taken[SIDE_BY_SIDE].append(sum(rates))


def _programs(lab: Lab, addresses: Sequence[str], size: Size) -> list[dict[str, float]]:
    """Run a program in the VM for each address, all at once; return what each has measured."""
    began = [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", lab.name("vm1")),
                *(sys.executable, ggml.RATES, address, str(size.calls), str(size.copies)),
            ],
            env=_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for address in addresses
    ]
    printed = [program.communicate()[0] for program in began]
    return [json.loads(each.splitlines()[-1]) for each in printed]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ggml.built()), "OPENBLAS_NUM_THREADS": "1"}


@contextmanager
def _servers() -> Iterator[Lab]:
    """Yield a lab on whose GPU host a server listens for each device."""
    with routing_lab() as lab, ExitStack() as stack:
        libraries = ggml.built() / "ggml/lib"
        for address in REAL:
            host, _, port = address.partition(":")
            server = subprocess.Popen(
                [
                    *("ip", "netns", "exec", lab.name("g1")),
                    *(sys.executable, "-m", "gsaas.gpu_host.servers.ggml"),
                    *("--libraries", libraries, "--threads", "1", "--host", host, "--port", port),
                ],
                stdout=subprocess.DEVNULL,
            )
            stack.callback(server.wait)
            stack.callback(server.kill)
        listening = f"sport >= {FIRST_PORT}"
        until(
            lambda: len(lab.run("g1", "ss", "-Htln", listening).splitlines()) == DEVICES,
            "the servers to listen",
        )
        yield lab


if __name__ == "__main__":
    json.dump(run(), sys.stdout)
    print()
