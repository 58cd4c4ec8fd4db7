# SPDX-License-Identifier: Apache-2.0
"""The desired bindings of programs of the host itself, and what the kernel has to contain for them.

Such programs have no tap and no chain: their bindings are elements of one map. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping

from gsaas.objects.address import Address
from gsaas.objects.binding import LocalBinding
from gsaas.objects.endpoint_report import BindingReport
from gsaas.objects.refusals import Refusals
from gsaas.rodvr import plan
from gsaas.rodvr.recent_refusals import RefusalCounts


class LocalBindings:
    """Desired local bindings, by port id."""

    def __init__(
        self, prefix: ipaddress.IPv4Network, check: Callable[[LocalBinding], None]
    ) -> None:
        """*check* raises `ValueError` for a binding that must not be installed, and says why."""
        self._check = check
        self._prefix = prefix
        self._desired: dict[str, LocalBinding] = {}
        self._complete = False
        """Whether all desired bindings are known; until then, unknown map elements are kept."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._desired)

    def __bool__(self) -> bool:
        return bool(self._desired)

    def all(self) -> list[LocalBinding]:
        """Return the desired local bindings."""
        return list(self._desired.values())

    def validate(self, binding: LocalBinding) -> None:
        """Raise `ValueError` if *binding* has a masked address outside the local prefix."""
        outside = [
            str(masked)
            for masked in binding.mappings
            if ipaddress.IPv4Address(masked.ip) not in self._prefix
        ]
        if outside:
            raise ValueError(f"{', '.join(outside)} is not in the local prefix {self._prefix}")

    def replace(self, bindings: Iterable[LocalBinding]) -> None:
        """Make *bindings* the desired local bindings, and no others."""
        self._desired = {binding.port_id: binding for binding in bindings}
        self._complete = True

    def known_keys(self) -> set[plan.LocalKey] | None:
        """Return what the kernel may contain of local bindings; None while not all desired ones are known."""
        if not self._complete:
            return None
        return {key for binding in self._desired.values() for key in plan.local_mappings(binding)}

    def masked_of(self, port_id: str) -> frozenset[Address] | None:
        """Return the masked addresses of the local binding of *port_id*; None if there is none."""
        binding = self._desired.get(port_id)
        return None if binding is None else frozenset(binding.mappings)

    def put(self, binding: LocalBinding) -> LocalBinding | None:
        """Add *binding* to the desired ones; return the one that it replaces, None if there is none."""
        former = self._desired.pop(binding.port_id, None)
        self._desired[binding.port_id] = binding
        return former

    def discard(self, port_id: str) -> LocalBinding | None:
        """Remove the local binding of *port_id* from the desired ones; return it, None if there is none."""
        return self._desired.pop(port_id, None)

    def plan_one(
        self, state: plan.DatapathState, former: LocalBinding | None, desired: LocalBinding | None
    ) -> plan.Plan:
        """Return the plan that puts *desired* into the place of *former*; None stands for no binding.

        Raises `ValueError` if *desired* is refused.
        """
        if desired is not None:
            self._check(desired)
        return plan.replace_local(
            state,
            plan.local_mappings(former) if former else {},
            plan.local_mappings(desired) if desired else {},
        )

    def plan_all(self, state: plan.DatapathState) -> plan.Plan:
        """Return the plan after which *state* has the desired bindings and, once all are known, no other.

        Bindings that are `refused` are left out.
        """
        refused = self.refused()
        desired: dict[plan.LocalKey, Address] = {}
        for port_id, binding in self._desired.items():
            if port_id not in refused:
                desired |= plan.local_mappings(binding)
        return plan.replace_local(
            state, list(state.local_mappings) if self._complete else [], desired
        )

    def refused(self) -> dict[str, str]:
        """Return why bindings must not be installed, by their ids."""
        found = {}
        for port_id, binding in self._desired.items():
            try:
                self._check(binding)
            except ValueError as error:
                found[port_id] = f"lease {binding.lease_id}: {error}"
        return found

    def installed(self, state: plan.DatapathState) -> dict[str, bool]:
        """Return whether *state* contains each desired binding, by its id."""
        return {port_id: is_in(state, binding) for port_id, binding in self._desired.items()}

    def reports(
        self,
        port_ids: Iterable[str],
        seconds: Callable[[str], float | None],
        counted: Mapping[str, RefusalCounts],
    ) -> dict[str, BindingReport]:
        """Return reports of those of *port_ids* that are desired.

        *seconds* tells how long an installation took, None for a binding that is not installed. *counted* is what
        `refusals` returns.
        """
        return {
            port_id: BindingReport(
                installed=seconds(port_id) is not None,
                seconds=seconds(port_id),
                unmapped=counted.get(port_id, RefusalCounts()).unmapped,
            )
            for port_id in port_ids
            if port_id in self._desired
        }

    def refusals(self, unmapped: Mapping[str, int]) -> dict[str, RefusalCounts]:
        """Return what was refused to each desired binding; *unmapped* counts connections by masked address."""
        return {
            port_id: RefusalCounts(
                sum(unmapped.get(ip, 0) for ip in {masked.ip for masked in binding.mappings})
            )
            for port_id, binding in self._desired.items()
        }

    def told(self, port_id: str, refusals: Refusals) -> str:
        """Return a sentence for operators about what was refused to a desired binding."""
        return f"lease {self._desired[port_id].lease_id}: {'; '.join(refusals.sentences(()))}"


def is_in(state: plan.DatapathState, binding: LocalBinding) -> bool:
    """Return whether *state* contains all mappings of *binding*."""
    return plan.local_mappings(binding).items() <= state.local_mappings.items()
