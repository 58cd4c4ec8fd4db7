# SPDX-License-Identifier: Apache-2.0
"""The desired bindings of VM ports: which of them owns which tap, and what each tap's chain has to be. Pure.

Two ports may name the same tap for a short time, when a VM is replaced; the latest one owns it. A binding
that was removed leaves its chain on the tap for a grace period, without mappings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gsaas.objects.binding import Binding
from gsaas.objects.endpoint_report import BindingReport, Traffic
from gsaas.rodvr import plan
from gsaas.rodvr.identities import Identities, NoIdentityLeft

InterfaceIndex = Callable[[str], int | None]
"""The interface index of a tap, None if there is no such tap; `ValueError` for an impossible name."""


@dataclass
class Wanted:
    """What the chains of all taps have to be."""

    attachments: dict[str, plan.Attachment] = field(default_factory=dict)
    """By tap; other taps have no chain."""
    keep: set[str] = field(default_factory=set)
    """Taps whose chains stay as they are: a former process made them, and they may be desired yet."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why ports cannot be attached, by their ids."""


class PortBindings:
    """Desired bindings of VM ports. Moments are in seconds of any clock that does not go back."""

    def __init__(
        self,
        identity_network: ipaddress.IPv4Network,
        grace: float,
        check: Callable[[Binding], None] = lambda _: None,
    ) -> None:
        """*check* raises `ValueError` for a binding that must not be installed, and says why."""
        self._check = check
        self._grace = grace
        self.identities = Identities(identity_network)
        self._desired: dict[str, Binding] = {}
        self._owners: dict[str, str] = {}
        """Tap -> id of the port that owns it."""
        self._complete = False
        """Whether all desired bindings are known; until then, unknown chains are kept."""
        self._grace_ends: dict[str, float] = {}
        """Tap of a removed binding -> when its chain is removed."""

    # -- desired bindings ---------------------------------------------------------------------------

    def __iter__(self) -> Iterator[str]:
        return iter(self._desired)

    def replace(self, bindings: Iterable[Binding]) -> None:
        """Make *bindings* the desired bindings, and no others."""
        self._desired = {binding.port_id: binding for binding in bindings}
        self._owners = {binding.tap: port_id for port_id, binding in self._desired.items()}
        self._complete = True

    def put(self, binding: Binding) -> bool:
        """Add *binding* to the desired ones, in the place of its port's former one.

        Returns whether it only concerns a tap that belonged to this port or to none. If not, other
        bindings may be concerned too.
        """
        port_id = binding.port_id
        former = self._desired.pop(port_id, None)
        self._desired[port_id] = binding
        former_owner = self._owners.get(binding.tap, port_id)
        self._owners[binding.tap] = port_id
        self._grace_ends.pop(binding.tap, None)
        moved = former is not None and former.tap != binding.tap
        if former is not None and moved:
            self._release_tap(former)
        return not moved and former_owner == port_id

    def discard(self, port_id: str) -> bool:
        """Remove the binding of *port_id* from the desired ones; return whether another binding owns its tap now."""
        former = self._desired.pop(port_id, None)
        return former is not None and self._release_tap(former)

    def owner(self, tap: str) -> str | None:
        """Return the id of the port that owns *tap*, None if there is none."""
        return self._owners.get(tap)

    def owns_its_tap(self, port_id: str) -> bool:
        """Return whether no other port owns the tap that the desired binding of *port_id* names."""
        return self._owners[self._desired[port_id].tap] == port_id

    def _release_tap(self, former: Binding) -> bool:
        """Assign the tap of *former* to another binding that names it; return whether there is one."""
        if self._owners.get(former.tap) != former.port_id:
            return False
        del self._owners[former.tap]
        for port_id, binding in self._desired.items():
            if binding.tap == former.tap:
                self._owners[former.tap] = port_id
        return former.tap in self._owners

    # -- what the kernel has to contain -------------------------------------------------------------

    def plan_port(
        self, port_id: str, state: plan.DatapathState, interface_index: InterfaceIndex
    ) -> tuple[plan.Plan, bool]:
        """Return the plan for one port that owns its tap, and whether it is installed afterwards.

        Raises `ValueError` for an impossible tap name or a refused binding, `NoIdentityLeft`, and `OSError` if the
        kernel cannot look up the tap.
        """
        binding = self._desired[port_id]
        self._check(binding)
        index = interface_index(binding.tap)
        if index is None:
            return plan.detach(state, binding.tap), False
        identity = self.identities.allocate(port_id)
        attachment = plan.Attachment.for_binding(binding, identity, index)
        return plan.attach(state, binding.tap, attachment), True

    def plan_all(
        self, state: plan.DatapathState, interface_index: InterfaceIndex, now: float
    ) -> Wanted:
        """Return what every tap's chain has to be, given what the tables contain.

        Adopts the identities in *state*, so that ports keep theirs when the endpoint restarts.
        """
        wanted = Wanted()
        for tag in state.chains.values():
            if tag is not None:
                self.identities.adopt(tag.port_id, tag.identity)
        for port_id, binding in self._desired.items():
            owner = self._owners[binding.tap]
            if owner != port_id:
                wanted.refused[port_id] = (
                    f"port {port_id}: its tap {binding.tap} belongs to port {owner}"
                )
                continue
            try:
                self._check(binding)
                index = interface_index(binding.tap)
                if index is not None:
                    identity = self.identities.allocate(port_id)
                    wanted.attachments[binding.tap] = plan.Attachment.for_binding(
                        binding, identity, index
                    )
            except (ValueError, NoIdentityLeft) as error:
                wanted.refused[port_id] = f"port {port_id}: {error}"
        self._plan_unwanted(state, interface_index, now, wanted)
        return wanted

    def _plan_unwanted(
        self,
        state: plan.DatapathState,
        interface_index: InterfaceIndex,
        now: float,
        wanted: Wanted,
    ) -> None:
        """Add to *wanted* the chains in *state* of ports that are not desired and still stay."""
        for tap, tag in state.chains.items():
            if tap in self._owners or tag is None or tag.port_id in self._desired:
                continue
            # With another index, the tap is a new one of the same name: the chain has no VM any more.
            present = interface_index(tap) == tag.ifindex
            if tap in self._grace_ends or self._complete:
                if present and now < self._grace_ends.setdefault(tap, now + self._grace):
                    wanted.attachments[tap] = plan.Attachment(tag)
            else:
                wanted.keep.add(tap)
                if present:
                    mappings = state.mappings.get(tag.identity, {})
                    wanted.attachments[tap] = plan.Attachment(tag, mappings)
        self._grace_ends = {
            tap: end for tap, end in self._grace_ends.items() if tap in wanted.attachments
        }

    def installed(
        self, state: plan.DatapathState, attachments: Mapping[str, plan.Attachment]
    ) -> dict[str, bool]:
        """Return whether *state* contains each desired binding, by port id; *attachments* are those of `plan_all`."""
        return {
            port_id: self._owners[tap] == port_id
            and tap in attachments
            and not plan.attach(state, tap, attachments[tap]).operations
            for port_id, tap in (
                (binding.port_id, binding.tap) for binding in self._desired.values()
            )
        }

    # -- grace --------------------------------------------------------------------------------------

    def start_grace(
        self, port_id: str, state: plan.DatapathState, now: float
    ) -> list[tuple[str, plan.ChainTag]]:
        """Start the grace period of a port that is not desired; return its chains in *state*, as (tap, tag)."""
        chains = [
            (tap, tag)
            for tap, tag in state.chains.items()
            if tag is not None and tag.port_id == port_id and tap not in self._owners
        ]
        for tap, _ in chains:
            self._grace_ends.setdefault(tap, now + self._grace)
        return chains

    def grace_deadlines(self) -> list[float]:
        """Return when grace periods end."""
        return list(self._grace_ends.values())

    def in_grace(self, tap: str) -> bool:
        """Return whether *tap* has the chain of a removed binding."""
        return tap in self._grace_ends

    def expired_taps(self, now: float) -> list[str]:
        """Return the taps whose grace period is over; each until `end_grace`."""
        return [tap for tap, end in self._grace_ends.items() if end <= now]

    def end_grace(self, tap: str) -> None:
        """Forget the grace period of *tap*, whose chain is gone."""
        del self._grace_ends[tap]

    def unused_identities(self, state: plan.DatapathState) -> list[tuple[str, str]]:
        """Return (port id, identity) of ports that are not desired and have no chain in *state*."""
        attached = {tag.port_id for tag in state.chains.values() if tag is not None}
        return [
            (port_id, self.identities.allocate(port_id))
            for port_id in self.identities.ports()
            if port_id not in attached and port_id not in self._desired
        ]

    # -- reports ------------------------------------------------------------------------------------

    def reports(
        self,
        port_ids: Iterable[str],
        seconds: Callable[[str], float | None],
        unmapped: Mapping[str, int],
        refused: Mapping[str, int],
    ) -> dict[str, BindingReport]:
        """Return reports of those of *port_ids* that are desired.

        *seconds* tells how long an installation took, None for a binding that is not installed. *unmapped* counts
        connections by identity, *refused* packets by tap.
        """
        return {
            port_id: BindingReport(
                installed=seconds(port_id) is not None,
                seconds=seconds(port_id),
                unmapped=unmapped.get(self.identities.get(port_id) or "", 0),
                refused=refused.get(self._desired[port_id].tap, 0),
            )
            for port_id in port_ids
            if port_id in self._desired
        }

    def traffic(
        self,
        sent: Mapping[str, int],
        received: Mapping[str, int],
        connections: Mapping[str, int],
    ) -> dict[str, Traffic]:
        """Return the traffic of each desired port that is installed, by port id.

        *sent* are bytes by tap, *received* bytes by identity, *connections* their numbers by identity.
        """
        found = {}
        for port_id, binding in self._desired.items():
            identity = self.identities.get(port_id) or ""
            if binding.tap in sent and identity in received:
                found[port_id] = Traffic(
                    sent[binding.tap], received[identity], connections.get(identity, 0)
                )
        return found
