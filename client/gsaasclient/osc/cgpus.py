# SPDX-License-Identifier: Apache-2.0
"""The options of a request for cGPUs, as `openstack gpu lease create` and other commands have them."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib import exceptions

from gsaasclient.osc.command import argument, positive
from gsaasclient.quantities import memory_mb


def add_options(parser: argparse.ArgumentParser, *, of_reservation: bool = False) -> None:
    """Add the options to *parser*; for a reservation, without those that it does not take."""
    parser.add_argument(
        "--cgpus", metavar="<number>", type=positive, default=1, help="how many cGPUs (default: 1)"
    )
    parser.add_argument(
        "--kind",
        choices=("cuda", "cpu"),
        help="cuda: GPUs of NVIDIA; cpu: CPU devices, which are cores and memory of hosts (default: what the operator "
        "has chosen)",
    )
    parser.add_argument(
        "--mode",
        choices=("exclusive", "shared"),
        help="exclusive: each cGPU is a whole GPU that no other lease uses; shared: each is a part of a GPU's memory "
        "(default: shared with --memory, else exclusive)",
    )
    parser.add_argument(
        "--memory",
        metavar="<size>",
        type=argument(memory_mb),
        help="GPU memory of each shared cGPU, such as 2G, or 2048 for MiB",
    )
    if of_reservation:
        parser.set_defaults(locality=None, policy=None)
    else:
        _add_placement_options(parser)
    parser.add_argument(
        "--gpu-model",
        metavar="<text>",
        help="only GPUs whose model contains this text, such as A100",
    )
    parser.add_argument(
        "--compute-capability",
        metavar="<X.Y>",
        help="only GPUs of at least this CUDA compute capability, such as 8.0",
    )
    parser.add_argument(
        "--hosts",
        choices=("any", "one", "spread"),
        help="any (default): on any GPU hosts; one: all on one GPU host; spread: each on another GPU host",
    )
    parser.add_argument("--host", metavar="<host>", help="only GPUs of this GPU host")


def _add_placement_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--locality",
        choices=("any", "local", "remote"),
        help="any (default): on any host; local: the VM runs on the host that has all its GPUs; remote: on a host "
        "that has none of them",
    )
    parser.add_argument(
        "--policy", metavar="<policy>", help="how GPUs are chosen: one of openstack gpu policy list"
    )


def from_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the API's `cgpus` for the options given. Raises `CommandError` where they contradict each other."""
    if args.mode == "shared" and args.memory is None:
        raise exceptions.CommandError(
            "--memory is needed with --mode shared: the GPU memory of each cGPU, such as 2G"
        )
    if args.mode == "exclusive" and args.memory is not None:
        raise exceptions.CommandError(
            "--memory is not valid with --mode exclusive: an exclusive cGPU has all memory of its GPU"
        )
    fields = {
        "count": args.cgpus,
        "mode": "exclusive" if args.memory is None else "shared",
        "memory_mb": args.memory,
        **{
            name: getattr(args, name)
            for name in (
                *("kind", "locality", "policy", "gpu_model", "compute_capability", "hosts", "host"),
            )
        },
    }
    return {name: value for name, value in fields.items() if value is not None}
