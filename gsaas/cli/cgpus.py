"""What is asked for, in its two spellings: the options of a command line and the API's `cgpus`."""

from __future__ import annotations

from types import SimpleNamespace

from gsaas.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


WORDS = {
    "policy": "policy",
    "model": "gpu_model",
    "capability": "compute_capability",
    "host": "host",
}
"""Options that are left out unless they are given, and the API's words for them."""


def from_options(args: SimpleNamespace) -> dict[str, Any]:
    """The API's `cgpus` for the options given; `UsageError` where they contradict each other."""
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
    for option, word in WORDS.items():
        if getattr(args, option) is not None:
            cgpus[word] = getattr(args, option)
    return cgpus


def to_options(cgpus: dict[str, Any]) -> str:
    """The options that ask for *cgpus*; defaults are left out."""
    words = [f"-ncgpus={cgpus['count']}"]
    if cgpus.get("memory_mb") is not None:
        words.append(f"-poolmem={cgpus['memory_mb']}")
    if cgpus.get("mode", "exclusive") != "exclusive":
        words.append(f"-mode={cgpus['mode']}")
    if cgpus.get("locality", "any") != "any":
        words.append(f"-locality={cgpus['locality']}")
    if cgpus.get("hosts", "any") != "any":
        words.append(f"-hosts={cgpus['hosts']}")
    for option, word in WORDS.items():
        if option != "policy" and cgpus.get(word) is not None:
            words.append(f"-{option}={_quoted(cgpus[word])}")
    return " ".join(words)


def _quoted(value: str) -> str:
    """*value* as a shell has to be told it."""
    from shlex import quote

    return quote(value)
