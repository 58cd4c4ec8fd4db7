# SPDX-License-Identifier: Apache-2.0
"""A request for cGPUs in its two notations: the options of a command line, and the API's `cgpus`."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


FIELDS = {
    "kind": "kind",
    "policy": "policy",
    "model": "gpu_model",
    "capability": "compute_capability",
    "host": "host",
}
"""The API's fields by option; a field is left out where its option is not given."""

OPTIONS = {
    "count": "-ncgpus",
    "kind": "-kind",
    "memory_mb": "-poolmem",
    "mode": "-mode",
    "locality": "-locality",
    "hosts": "-hosts",
    "gpu_model": "-model",
    "compute_capability": "-capability",
    "host": "-host",
}
"""The options by field of a request that an error message repeats: without the policy, which it does not repeat."""
DEFAULTS = {"mode": "exclusive", "locality": "any", "hosts": "any"}
"""The values of fields that a request need not name."""


def from_options(args: SimpleNamespace) -> dict[str, Any]:
    """Return the API's `cgpus` for the options given. Raises `UsageError` where they contradict each other."""
    if args.ncgpus is None:
        raise UsageError("-ncgpus is needed: how many cGPUs")
    if args.mode == "shared" and args.poolmem is None:
        raise UsageError(
            "-poolmem is needed with -mode=shared: the GPU memory of each cGPU, such as 2G"
        )
    if args.mode == "exclusive" and args.poolmem is not None:
        raise UsageError(
            "-poolmem is not valid with -mode=exclusive: an exclusive cGPU has all memory of its GPU"
        )
    mode = args.mode or ("exclusive" if args.poolmem is None else "shared")
    cgpus = {"count": args.ncgpus, "mode": mode, "locality": args.locality}
    if args.poolmem is not None:
        cgpus["memory_mb"] = args.poolmem
    if args.hosts != "any":
        cgpus["hosts"] = args.hosts
    for option, field in FIELDS.items():
        if getattr(args, option) is not None:
            cgpus[field] = getattr(args, option)
    return cgpus


USUAL_KIND = "cuda"


def asked(cgpus: dict[str, Any]) -> str:
    """Return the options of what was asked for; its kind only where it is not the usual one, which is rarely named."""
    usual = cgpus.get("kind") == USUAL_KIND
    return to_options(cgpus | {"kind": None} if usual else cgpus)


def to_options(cgpus: dict[str, Any], options: Mapping[str, str] = OPTIONS) -> str:
    """Return the command line that requests *cgpus*; what is default is left out. *options* are those by field."""
    words = []
    for field, option in options.items():
        value = cgpus.get(field)
        if value is not None and value != DEFAULTS.get(field):
            words.append(f"{option}={_quoted(str(value))}")
    return " ".join(words)


def _quoted(value: str) -> str:
    """Return *value* quoted for a shell, where it needs quotes."""
    if value.isascii() and value.isalnum():
        return value
    # Imported here, because most commands quote nothing.
    from shlex import quote

    return quote(value)
