# SPDX-License-Identifier: Apache-2.0
"""The kernel of one host, as its endpoint uses it: carries out plans, and knows what the tables contain.

Used with the endpoint's lock acquired, except for `Watch.wait` and `Datapath.read`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

from gsaas.objects.binding import LocalBinding
from gsaas.rodvr import plan
from gsaas.rodvr.config import DatapathConfig
from gsaas.rodvr.kernel.datapath import Datapath
from gsaas.rodvr.kernel.events import Watch
from gsaas.rodvr.port_bindings import Wanted

LOG = logging.getLogger(__name__)


class Kernel:
    """The datapath of a host and the watch for its events, open while the endpoint runs.

    Methods raise `RuntimeError` while it does not run, and `OSError` if the kernel refuses.
    """

    def __init__(self, host: str, config: DatapathConfig) -> None:
        self._host = host
        self._config = config
        self._datapath: Datapath | None = None
        self._watch: Watch | None = None
        self.changes = 0
        """Counts the executed plans: an audit that sees it change knows that what it has read is outdated."""
        self._forget()

    def _forget(self) -> None:
        self.state = plan.DatapathState()
        """What the tables contain: as they were read last, with all changes since."""
        self.synced = False
        """Whether `state` can be relied on: the last reading succeeded."""
        self.pending_cuts: list[plan.Cut | plan.LocalCut] = []
        """Connections that must end and have not yet."""
        self.cut_refusal: OSError | None = None
        """Why the kernel has not cut them."""
        self._intact = False
        self._strays_possible = True
        """The tables were missing, maybe before this process, and strays have not been forgotten since."""

    @property
    def datapath(self) -> Datapath:
        """The open datapath."""
        if self._datapath is None:
            raise RuntimeError(f"the endpoint of {self._host} is not running")
        return self._datapath

    @property
    def watch(self) -> Watch | None:
        """The watch for link and table events; None if the endpoint is not running."""
        return self._watch

    # -- life cycle ---------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the sockets."""
        self._datapath = Datapath(self._config)
        self._watch = self._datapath.watch()

    def close(self) -> None:
        """Close the sockets. What is in the kernel stays there."""
        if self._watch is not None:
            self._watch.close()
        if self._datapath is not None:
            self._datapath.close()
        self._watch = self._datapath = None

    def wake(self) -> None:
        """End the wait of the thread that waits for events, if there is one."""
        if self._watch is not None:
            self._watch.wake()

    def teardown(self) -> None:
        """Remove everything of RODVR from the kernel, in a datapath of its own. The endpoint does not run."""
        datapath = Datapath(self._config)
        try:
            datapath.teardown()
        finally:
            datapath.close()
        self._forget()

    # -- all that the tables contain ----------------------------------------------------------------

    def invalidate(self) -> None:
        """Stop relying on `state`, until `refresh`."""
        self.synced = False

    def refresh(self) -> None:
        """Configure links and settings, and read the tables. If that fails, `state` cannot be relied on."""
        self.invalidate()
        matching = self.datapath.prepare()
        found = self.datapath.read()
        self._load(found.state)
        self._intact = matching and found.intact
        self._strays_possible |= not self._intact

    def converge(
        self, wanted: Wanted, plan_local: Callable[[plan.DatapathState], plan.Plan]
    ) -> dict[str, str]:
        """Make the tables, which were just read, contain what is *wanted* and what *plan_local* plans.

        All is one transaction if the kernel accepts it; if not, each tap has its own.
        Returns what was refused: the key and the text of each problem.
        """
        rebuild = not self._intact
        base = plan.DatapathState() if rebuild else self.state
        change = plan.reconcile(base, wanted.attachments, keep=wanted.keep)
        change.extend(plan_local(base))
        refused: dict[str, str] = {}
        if not change.operations and not rebuild:
            return refused
        try:
            self.execute(change, rebuild=rebuild)
        except (OSError, ValueError) as error:
            LOG.warning("%s: %s; trying each tap by itself", self._host, error)
            if rebuild:
                self.execute(plan.Plan(), rebuild=True)
            refused = self._converge_one_by_one(wanted, plan_local)
        self._load(self.datapath.read().state)
        return refused

    def _converge_one_by_one(
        self, wanted: Wanted, plan_local: Callable[[plan.DatapathState], plan.Plan]
    ) -> dict[str, str]:
        refused = {}
        # Removals first: they free identities and return paths that additions may need.
        present = wanted.attachments.keys() & self.state.chains.keys()
        self.execute(plan.reconcile(self.state, {}, keep=wanted.keep | present))
        for tap, attachment in wanted.attachments.items():
            try:
                self.execute(plan.attach(self.state, tap, attachment))
            except (OSError, ValueError) as error:
                port_id = attachment.tag.port_id
                refused[f"port {port_id}"] = f"port {port_id} on tap {tap}: {error}"
        try:
            self.execute(plan_local(self.state))
        except (OSError, ValueError) as error:
            refused["local"] = f"leases of this host's own programs: {error}"
        return refused

    def _load(self, state: plan.DatapathState) -> None:
        self.synced = True
        self.state = state

    def watch_tables(self) -> None:
        """Have changes by other programs noticed, where the kernel does not keep them from the tables."""
        if self._watch is not None and not self.datapath.protected:
            self._watch.watch_tables()

    # -- changes ------------------------------------------------------------------------------------

    def execute(self, change: plan.Plan, *, rebuild: bool = False) -> None:
        """Execute *change* in one transaction, on top of new and empty tables if *rebuild*, and cut its connections.

        Raises `OSError` if the kernel refuses it, and `ValueError` if it cannot be encoded; neither changes anything.
        """
        if change.operations or rebuild:
            self.datapath.apply(change.operations, rebuild=rebuild)
            self.changes += 1
            if rebuild:
                self.state = plan.DatapathState()
            self.state.commit(change.operations)
        # After the transaction: before it, the client could connect again by the old mapping.
        self.cut(change.cuts)

    def cut(self, cuts: Iterable[plan.Cut | plan.LocalCut] = ()) -> None:
        """Cut connections, pending ones included. What the kernel refuses stays pending; `cut_refusal` says why."""
        self.pending_cuts += cuts
        self.cut_refusal = None
        if not self.pending_cuts:
            return
        try:
            self.datapath.cut(self.pending_cuts)
        except OSError as error:
            self.cut_refusal = error
        else:
            self.pending_cuts.clear()

    def cut_stale(self) -> None:
        """Cut connections that go where no mapping leads."""
        datapath = self.datapath
        self.cut(plan.stale_connections(datapath.connections(), self.state))
        self.cut(plan.stale_local_connections(datapath.local_connections(), self.state))

    def forget_strays(self) -> None:
        """Have the kernel forget connections that it tracked while the tables were missing, if they were."""
        if self._strays_possible:
            self.datapath.forget_strays()
            self._strays_possible = False

    def are_cut_off(self, identities: Collection[str]) -> bool:
        """Return whether it is certain that *identities*, those of a port, reach no daemon any more."""
        pending = any(
            isinstance(cut, plan.Cut) and cut.identity in identities for cut in self.pending_cuts
        )
        return self.synced and not pending and self.state.mappings.keys().isdisjoint(identities)

    def is_local_cut_off(self, binding: LocalBinding) -> bool:
        """Return whether it is certain that programs of the host reach no daemon by *binding* any more."""
        masked = set(binding.mappings)
        pending = any(cut.masked in masked for cut in self.pending_cuts)
        mapped = any(key in self.state.local_mappings for key in plan.local_mappings(binding))
        return self.synced and not pending and not mapped

    def has_local_strays(self, known: Collection[plan.LocalKey]) -> bool:
        """Return whether programs of the host may reach a daemon by another local mapping than the *known* ones."""
        masked = {key.masked for key in known}
        pending = any(
            isinstance(cut, plan.LocalCut) and cut.masked not in masked for cut in self.pending_cuts
        )
        return not self.synced or pending or not self.state.local_mappings.keys() <= set(known)
