# SPDX-License-Identifier: Apache-2.0
"""A request for cGPUs in its two notations: the options of a command line, and the API's `cgpus`."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


FIELDS = {
    "policy": "policy",
    "model": "gpu_model",
    "capability": "compute_capability",
    "host": "host",
}
"""The API's fields by option; a field is left out where its option is not given."""


def from_options(args: SimpleNamespace) -> dict[str, Any]:
    """Return the API's `cgpus` for the options given. Raises `UsageError` where they contradict each other."""
    if args.ncgpus is None:
        raise UsageError("-ncgpus is needed: how many cGPUs")
    if args.mode == "shared" and args.poolmem is None:
        raise UsageError("-poolmem is needed with -mode=shared: MiB of GPU memory per cGPU")
    if args.mode == "exclusive" and args.poolmem is not None:
        raise UsageError(
            "-poolmem goes with -mode=shared only: an exclusive cGPU has all memory of its GPU"
        )
    cgpus = {"count": args.ncgpus, "mode": args.mode, "locality": args.locality}
    if args.poolmem is not None:
        cgpus["memory_mb"] = args.poolmem
    if args.hosts != "any":
        cgpus["hosts"] = args.hosts
    for option, field in FIELDS.items():
        if getattr(args, option) is not None:
            cgpus[field] = getattr(args, option)
    return cgpus


def to_options(cgpus: dict[str, Any]) -> str:
    """Return the options that request *cgpus*; those with their default values are left out."""
    words = [f"-ncgpus={cgpus['count']}"]
    if cgpus.get("memory_mb") is not None:
        words.append(f"-poolmem={cgpus['memory_mb']}")
    if cgpus.get("mode", "exclusive") != "exclusive":
        words.append(f"-mode={cgpus['mode']}")
    if cgpus.get("locality", "any") != "any":
        words.append(f"-locality={cgpus['locality']}")
    if cgpus.get("hosts", "any") != "any":
        words.append(f"-hosts={cgpus['hosts']}")
    for option, field in FIELDS.items():
        if option != "policy" and cgpus.get(field) is not None:
            words.append(f"-{option}={_quoted(cgpus[field])}")
    return " ".join(words)


def _quoted(value: str) -> str:
    """Return *value* quoted for a shell, where it needs quotes."""
    # Imported here, because most commands quote nothing.
    from shlex import quote

    return quote(value)
