# SPDX-License-Identifier: Apache-2.0
"""The steps of the demonstration: five command lines, each followed by proofs that it did what it promises.

A tenant runs the commands. An administrator, to whom the API shows GPUs, hosts and real addresses, verifies them.
"""

from __future__ import annotations

import shlex
from typing import Any

from gsaas.standalone.demo import proofs
from gsaas.standalone.demo.proofs import Proof
from gsaas.standalone.demo.screen import Screen
from gsaas.standalone.demo.user import User

WHOLE = ("-l", "-ncgpus=2")
SHARED = ("-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
LOCAL_SHARED = ("-l", "-ncgpus=8", "-poolmem=4096", "-mode=shared", "-locality=local")
LOCAL_WHOLE = ("-l", "-ncgpus=2", "-locality=local")

Lease = dict[str, Any]


class Demonstration:
    """Runs the steps and prints them; collects the sentences of the proofs that failed in `failed`."""

    def __init__(self, screen: Screen, tenant: User, admin: User) -> None:
        self._screen = screen
        self._tenant = tenant
        self._admin = admin
        self.failed: list[str] = []

    def launch_all(self) -> None:
        """Run every launch; before the last one the pool is full, so that one is refused."""
        self._screen.heading("The pool, as its administrator sees it")
        self._admin.run("gpus")

        self._screen.heading("1. Two whole GPUs, wherever they are")
        first = self._launch(WHOLE)

        self._screen.heading("2. Two cGPUs of 2048 MiB, on GPUs that others may share")
        second = self._launch(SHARED)
        self._prove(proofs.same_address_leads_to_different_gpus(first, second))

        self._screen.heading("3. Eight cGPUs of 4096 MiB, on the host that runs the VM")
        self._prove(proofs.all_on_one_host(self._launch(LOCAL_SHARED)))

        self._screen.heading("4. Two whole GPUs, on the host that runs the VM")
        self._launch_refused(LOCAL_WHOLE)
        self._screen.paragraph("So the first VM has to go.")
        self._terminate(first)
        self._prove(proofs.all_on_one_host(self._launch(LOCAL_WHOLE)))

        self._screen.heading("What is in use now")
        self._admin.run("gpus")
        self._prove(proofs.no_gpu_is_over_committed(self._gpus()))

    def terminate_all(self) -> None:
        """Release every lease."""
        self._screen.heading("5. Everything is given back")
        for lease in self._leases():
            self._terminate(lease)
        self._tenant.run("list")

    def _launch(self, words: tuple[str, ...]) -> Lease:
        """Launch, and prove what the launch promises. Returns the lease as the API shows it to administrators."""
        known = {lease["id"] for lease in self._leases()}
        if not self._tenant.run(*words):
            raise RuntimeError(f"gsaas {shlex.join(words)} should have been granted")
        (lease_id,) = {lease["id"] for lease in self._leases()} - known
        lease: Lease = self._admin.get(f"/v1/leases/{lease_id}")["lease"]
        self._tenant.run("env", lease_id)
        self._prove(
            self._environment_is_masked(lease),
            proofs.daemons_are_separate(lease),
            *self._vm_reaches(lease),
        )
        return lease

    def _environment_is_masked(self, lease: Lease) -> Proof:
        answer = self._tenant.get(f"/v1/leases/{lease['id']}/environment")
        return proofs.environment_is_masked(answer["environment"], lease)

    def _vm_reaches(self, lease: Lease) -> list[Proof]:
        """Prove, from inside the VM, that it reaches its own masked addresses and nothing else."""
        masked = [device["masked_address"] for device in lease["devices"]]
        beyond = proofs.address_after(masked[-1])
        hosts = {g["host"]: g["daemon_address"] for g in self._gpus() if g["index"] == 0}
        probes = self._tenant.probe(lease["id"], [*masked, beyond, *hosts.values()])
        return [
            *proofs.daemons_answer(lease, probes),
            proofs.does_not_answer(beyond, "which it was not given", probes),
            *(
                proofs.does_not_answer(address, f"the real address of {host}", probes)
                for host, address in sorted(hosts.items())
            ),
        ]

    def _launch_refused(self, words: tuple[str, ...]) -> None:
        """Launch, and prove that it is refused without any change."""
        before = self._leases(), self._gpus()
        granted = self._tenant.run(*words)
        untouched = (self._leases(), self._gpus()) == before
        self._prove(Proof(not granted and untouched, "it is refused, and nothing was changed"))

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
