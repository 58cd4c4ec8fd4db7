# SPDX-License-Identifier: Apache-2.0
"""What every step of a demonstration consists of: a command line, followed by proofs that it did what it promises.

A tenant runs the commands. An administrator, to whom the API shows GPUs, hosts and real addresses, verifies them.
"""

from __future__ import annotations

import abc
import shlex
from collections.abc import Sequence
from typing import Any

from gsaas.standalone.demo import proofs
from gsaas.standalone.demo.proofs import Proof
from gsaas.standalone.demo.screen import Screen
from gsaas.standalone.demo.user import User

Lease = dict[str, Any]


class Steps(abc.ABC):
    """Runs the steps and prints them; collects the sentences of the proofs that failed in `failed`."""

    introduction: str
    """What is shown, before anything is."""
    example: str
    """A command to try in a VM afterwards."""

    def __init__(self, screen: Screen, tenant: User, admin: User) -> None:
        self._screen = screen
        self._tenant = tenant
        self._admin = admin
        self.failed: list[str] = []

    @abc.abstractmethod
    def run(self) -> None:
        """Run all steps but the end of what is left running."""

    def terminate_all(self) -> None:
        """Release every lease."""
        self._screen.heading("Everything is given back")
        for lease in self._leases():
            self._terminate(lease)
        self._tenant.run("list")

    def _launch(self, words: Sequence[str]) -> Lease:
        """Launch. Returns the lease as the API shows it to administrators."""
        known = {lease["id"] for lease in self._leases()}
        if not self._tenant.run(*words):
            raise RuntimeError(f"gsaas {shlex.join(words)} should have been granted")
        (lease_id,) = {lease["id"] for lease in self._leases()} - known
        lease: Lease = self._admin.get(f"/v1/leases/{lease_id}")["lease"]
        self._tenant.run("env", lease_id)
        return lease

    def _environment_is_masked(self, lease: Lease) -> Proof:
        answer = self._tenant.get(f"/v1/leases/{lease['id']}/environment")
        return proofs.environment_is_masked(answer["environment"], lease)

    def _beyond(self, lease: Lease) -> str:
        """Return the address after the masked addresses of a lease, which it was not given."""
        return proofs.address_after(lease["devices"][-1]["masked_address"])

    def _terminate(self, lease: Lease) -> None:
        """Release a lease by the id of its VM, and prove that no GPU is claimed by it any more."""
        self._tenant.run("-t", f"-id={lease['server']['id']}")
        still_claimed = [gpu["uuid"] for gpu in self._gpus() if lease["id"] in gpu["leases"]]
        gone = lease["id"] not in {other["id"] for other in self._leases()}
        self._prove(Proof(gone and not still_claimed, "the lease is gone, and has no GPU any more"))

    def _leases(self) -> list[Lease]:
        """Return the tenant's leases, as the API shows them to the tenant."""
        leases: list[Lease] = self._tenant.get("/v1/leases")["leases"]
        return leases

    def _gpus(self) -> list[dict[str, Any]]:
        """Return all GPUs, as the API shows them to administrators."""
        gpus: list[dict[str, Any]] = self._admin.get("/v1/gpus")["gpus"]
        return gpus

    def _prove(self, *results: Proof) -> None:
        """Print the results of proofs, and note those that failed."""
        for proof in results:
            self._screen.proof(proof.holds, proof.sentence)
            if not proof.holds:
                self.failed.append(proof.sentence)
        self._screen.blank()
