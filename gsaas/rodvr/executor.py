# SPDX-License-Identifier: Apache-2.0
"""Carries out plans in the kernel, and keeps the state of its tables that plans start from."""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.objects.binding import LocalBinding
from gsaas.rodvr import plan
from gsaas.rodvr.problems import Problems
from gsaas.rodvr.session import KernelSession


class PlanExecutor:
    """Executes plans and cuts connections. Used with the endpoint's lock acquired."""

    def __init__(self, session: KernelSession, problems: Problems) -> None:
        self._session = session
        self._problems = problems
        self.state = plan.DatapathState()
        """What the tables contain: as they were read last, with all changes since."""
        self.synced = False
        """Whether `state` can be relied on: the last reading succeeded."""
        self.changes = 0
        """Counts the executed plans: an audit that sees it change knows that what it has read is outdated."""
        self._pending_cuts: list[plan.Cut | plan.LocalCut] = []
        """Connections that must end and have not yet."""

    @property
    def pending_cuts(self) -> tuple[plan.Cut | plan.LocalCut, ...]:
        """Connections that the kernel has so far refused to cut."""
        return tuple(self._pending_cuts)

    def invalidate(self) -> None:
        """Stop relying on `state`, until `load`."""
        self.synced = False

    def load(self, state: plan.DatapathState) -> None:
        """Rely on *state*, which was just read."""
        self.synced = True
        self.state = state

    def execute(self, change: plan.Plan, *, rebuild: bool = False) -> None:
        """Execute *change* in one transaction, on top of new and empty tables if *rebuild*.

        Raises `OSError` if the kernel refuses it, and `ValueError` if it cannot be encoded; neither changes
        anything. Connections that cannot be cut become a problem.
        """
        if change.operations or rebuild:
            self._session.datapath.apply(change.operations, rebuild=rebuild)
            self.changes += 1
            if rebuild:
                self.state = plan.DatapathState()
            self.state.commit(change.operations)
        # After the transaction: before it, the client could connect again by the old mapping.
        self.cut(change.cuts)

    def cut(self, cuts: Iterable[plan.Cut | plan.LocalCut] = ()) -> None:
        """Cut connections, those that are pending included; what the kernel refuses stays pending."""
        self._pending_cuts.extend(cuts)
        if not self._pending_cuts:
            return
        try:
            self._session.datapath.cut(self._pending_cuts)
        except OSError as error:
            self._problems.add("connections", f"connections could not be cut: {error}")
        else:
            self._pending_cuts.clear()
            self._problems.resolve("connections")

    def is_local_cut_off(self, binding: LocalBinding) -> bool:
        """Return whether it is certain that programs of the host reach no daemon by *binding* any more."""
        masked = set(binding.mappings)
        pending = any(cut.masked in masked for cut in self._pending_cuts)
        mapped = any(key in self.state.local_mappings for key in plan.local_mappings(binding))
        return self.synced and not pending and not mapped

    def is_cut_off(self, identity: str | None) -> bool:
        """Return whether it is certain that *identity*, None for a port without one, reaches no daemon any more."""
        pending = any(
            isinstance(cut, plan.Cut) and cut.identity == identity for cut in self._pending_cuts
        )
        return self.synced and not pending and identity not in self.state.mappings
