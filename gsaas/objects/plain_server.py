# SPDX-License-Identifier: Apache-2.0
"""Plain servers: servers that their owners make with Nova, and what their properties ask of GSaaS.

A property is an extra spec of the server's flavor, or an entry of its metadata, whose name begins with `gsaas:`. The
flavor is the operator's, and may be what a project pays for. So metadata may add properties to those of the flavor, and
may not change them.

Pure: no cloud, no database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gsaas.objects.device_kinds import KINDS
from gsaas.objects.gpu import EXCLUSIVE, SHARED
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request

PREFIX = "gsaas:"
COUNT, MEMORY = f"{PREFIX}ncgpus", f"{PREFIX}poolmem"
FIELDS = {
    COUNT: "count",
    f"{PREFIX}kind": "kind",
    f"{PREFIX}mode": "mode",
    MEMORY: "memory_mb",
    f"{PREFIX}locality": "locality",
    f"{PREFIX}policy": "policy",
    f"{PREFIX}model": "gpu_model",
    f"{PREFIX}capability": "compute_capability",
    f"{PREFIX}hosts": "hosts",
    f"{PREFIX}host": "host",
}
"""Property -> the field of the API's `cgpus` that it sets; the names are those of the options of `gsaas -l`."""

_NUMBERS = {COUNT, MEMORY}
_CHOICES = {
    f"{PREFIX}kind": KINDS,
    f"{PREFIX}mode": (EXCLUSIVE, SHARED),
    f"{PREFIX}locality": (ANY, LOCAL, REMOTE),
    f"{PREFIX}hosts": (ANY, ONE, SPREAD),
}
_LONGEST = {f"{PREFIX}policy": 64}
_LONGEST_TEXT = 255
_MOST_DIGITS = 9


@dataclass(frozen=True)
class PlainServer:
    """A server of Nova's as it is now, for a decision whether it gets cGPUs."""

    id: str
    project_id: str
    user_id: str
    name: str
    host: str | None
    """The compute host; None until Nova has chosen one."""
    is_usable: bool
    """Whether it is being built or runs; a server that is shelved, failed or being deleted gets no cGPUs."""
    lease_id: str | None = None
    """The lease that its tag names: GSaaS has made it for that lease."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """Those of its flavor, as the flavor was when the server was made."""
    metadata: Mapping[str, str] = field(default_factory=dict)


def asks(*sources: Iterable[str]) -> bool:
    """Return whether one of *sources*, the names of extra specs or metadata, has a property of GSaaS."""
    return any(name.startswith(PREFIX) for names in sources for name in names)


def wanted(
    extra_specs: Mapping[str, str], metadata: Mapping[str, str], *, from_metadata: bool = True
) -> dict[str, Any] | None:
    """Return what a server asks for, in the form of the API's `cgpus`; None if it has no property of GSaaS.

    Without *from_metadata*, only flavors may have properties. Raises `ValueError`, with a sentence for the server's
    owner, for a property that does not exist, a value that it cannot have, and properties that contradict each other.
    """
    flavors, own = _properties(extra_specs), _properties(metadata)
    if own and not from_metadata:
        raise ValueError(
            f"the server's metadata has {min(own)}; in this cloud only flavors may have properties of GSaaS"
        )
    for name in sorted(flavors.keys() & own.keys()):
        if flavors[name] != own[name]:
            raise ValueError(
                f"the server's metadata has {name}={own[name]!r} and its flavor {name}={flavors[name]!r}; metadata may "
                "not change what the flavor says"
            )
    properties = {**own, **flavors}
    if not properties:
        return None
    if COUNT not in properties:
        raise ValueError(f"{min(properties)} is given without {COUNT}, the number of cGPUs")
    cgpus = {FIELDS[name]: _value(name, text) for name, text in sorted(properties.items())}
    if MEMORY in properties and cgpus.setdefault("mode", SHARED) != SHARED:
        raise ValueError(f"{MEMORY} is not valid with {PREFIX}mode={EXCLUSIVE}")
    if MEMORY not in properties and cgpus.get("mode") == SHARED:
        raise ValueError(f"{PREFIX}mode={SHARED} needs {MEMORY}, the MiB of each cGPU")
    Request.from_dict(cgpus)
    return cgpus


def _properties(source: Mapping[str, str]) -> dict[str, str]:
    """Return the properties of GSaaS in *source*; raises `ValueError` for one that does not exist."""
    found = {name: str(text) for name, text in source.items() if name.startswith(PREFIX)}
    if unknown := found.keys() - FIELDS.keys():
        raise ValueError(f"there is no property {min(unknown)!r}; there are {', '.join(FIELDS)}")
    return found


def _value(name: str, text: str) -> int | str:
    """Return the value of a property; raises `ValueError`, which names the property and the value."""
    if name in _NUMBERS:
        if not re.fullmatch(f"[1-9][0-9]{{0,{_MOST_DIGITS - 1}}}", text, re.ASCII):
            raise ValueError(f"{name} is {text!r}; it must be a whole number from 1 on")
        return int(text)
    if name in _CHOICES and text not in _CHOICES[name]:
        raise ValueError(f"{name} is {text!r}; it must be one of {', '.join(_CHOICES[name])}")
    longest = _LONGEST.get(name, _LONGEST_TEXT)
    if not (text.isprintable() and 1 <= len(text) <= longest):
        raise ValueError(f"{name} must be a text of 1 to {longest} printable characters")
    return text
