# SPDX-License-Identifier: Apache-2.0
"""What a RODVR endpoint answers when it is asked what it has: its bindings, and how the kernel differs from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gsaas.objects.binding import Binding, LocalBinding, binding_from_dict
from gsaas.objects.printable import one_line

MISSING, SURPLUS, WRONG = "missing", "surplus", "wrong"
"""How a part of the kernel's tables differs: it is not there, or belongs to nobody, or is not what it should be."""
_LONGEST = 512


@dataclass(frozen=True)
class KernelDifference:
    """One part of the kernel's tables that is not as the bindings want it."""

    how: str
    """`MISSING`, `SURPLUS` or `WRONG`."""
    what: str
    """Its name, for operators: `the mapping 169.254.71.1:8308 of port …`."""


@dataclass(frozen=True)
class EndpointAudit:
    """The bindings that an endpoint was sent, and how the kernel differs from them."""

    bindings: tuple[Binding | LocalBinding, ...]
    kernel: tuple[KernelDifference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the audit in JSON's types."""
        return {
            "bindings": [binding.to_dict() for binding in self.bindings],
            "kernel": [[each.how, each.what] for each in self.kernel],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EndpointAudit:
        """Undo `to_dict`; `ValueError`, `TypeError` or `KeyError` if *data* is no audit. A host may send any text."""
        differences = []
        for how, what in data["kernel"]:
            if how not in (MISSING, SURPLUS, WRONG):
                raise ValueError("a difference of the kernel is neither missing, surplus nor wrong")
            differences.append(KernelDifference(how, one_line(str(what), _LONGEST)))
        return cls(tuple(binding_from_dict(each) for each in data["bindings"]), tuple(differences))
