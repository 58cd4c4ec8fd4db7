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
from gsaas.objects.refusals import Refusals
from gsaas.rodvr import plan
from gsaas.rodvr.identities import Holder, Identities, NoIdentityLeft
from gsaas.rodvr.recent_refusals import RefusalCounts

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

    def all(self) -> list[Binding]:
        """Return the desired bindings."""
        return list(self._desired.values())

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
        return plan.attach(state, binding.tap, self._attachment(binding, index)), True

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
                for ip, identity in state.sources.get(tag.ifindex, {}).items():
                    self.identities.adopt(tag.port_id, identity, ip)
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
                    wanted.attachments[binding.tap] = self._attachment(binding, index)
            except (ValueError, NoIdentityLeft) as error:
                wanted.refused[port_id] = f"port {port_id}: {error}"
        self._plan_unwanted(state, interface_index, now, wanted)
        return wanted

    def _attachment(self, binding: Binding, index: int) -> plan.Attachment:
        port_id = binding.port_id
        identity = self.identities.allocate(port_id)
        others = [ip for ip in dict.fromkeys(binding.other_ips) if ip != binding.ip]
        sources = {ip: self.identities.allocate(port_id, ip) for ip in others}
        return plan.Attachment.for_binding(binding, identity, index, sources)

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
                    wanted.attachments[tap] = plan.unmapped_attachment(state, tag)
            else:
                wanted.keep.add(tap)
                if present:
                    mappings = state.mappings.get(tag.identity, {})
                    sources = dict(state.sources.get(tag.ifindex, {}))
                    wanted.attachments[tap] = plan.Attachment(tag, mappings, sources)
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

    def unused_identities(self, state: plan.DatapathState) -> list[tuple[str, Holder]]:
        """Return the identities, each with its holder, of what is not desired and is not in *state*."""
        used = {tag.identity for tag in state.chains.values() if tag is not None}
        used |= {identity for sources in state.sources.values() for identity in sources.values()}
        return [
            (identity, (port_id, ip))
            for identity, (port_id, ip) in self.identities.all()
            if identity not in used and not self._is_desired(port_id, ip)
        ]

    def _is_desired(self, port_id: str, ip: str) -> bool:
        binding = self._desired.get(port_id)
        return binding is not None and (not ip or ip in binding.other_ips)

    # -- reports ------------------------------------------------------------------------------------

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
                unmapped=counts.unmapped,
                refused=counts.foreign + counts.not_tcp + counts.fragments,
            )
            for port_id in port_ids
            if port_id in self._desired
            for counts in [counted.get(port_id, RefusalCounts())]
        }

    def refusals(
        self, unmapped: Mapping[str, int], dropped: Mapping[str, RefusalCounts]
    ) -> dict[str, RefusalCounts]:
        """Return what was refused to each desired port.

        *unmapped* counts connections by identity, and *dropped* has the packets that were dropped at each tap.
        """
        return {
            port_id: dropped.get(binding.tap, RefusalCounts())._replace(
                unmapped=sum(unmapped.get(each, 0) for each in self.identities.of_port(port_id))
            )
            for port_id, binding in self._desired.items()
        }

    def told(self, port_id: str, refusals: Refusals) -> str:
        """Return a sentence for operators about what was refused to a desired port."""
        binding = self._desired[port_id]
        sentences = refusals.sentences((binding.ip, *binding.other_ips))
        return f"lease {binding.lease_id}, port {port_id}: {'; '.join(sentences)}"

    def strangers(self, by_index: Mapping[int, str], state: plan.DatapathState) -> dict[str, str]:
        """Return port id -> an address that it has sent from and does not have, from those of taps by their index."""
        return {
            tag.port_id: by_index[tag.ifindex]
            for tag in state.chains.values()
            if tag is not None and tag.ifindex in by_index
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
            identities = self.identities.of_port(port_id)
            if binding.tap in sent and any(identity in received for identity in identities):
                found[port_id] = Traffic(
                    sent[binding.tap],
                    sum(received.get(identity, 0) for identity in identities),
                    sum(connections.get(identity, 0) for identity in identities),
                )
        return found
