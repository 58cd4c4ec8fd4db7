"""The story that the demonstration tells: five command lines, each followed by proofs that it did
what it said. A tenant types; an administrator, who may see where things really are, checks.
"""

from __future__ import annotations

import shlex
from typing import Any

from gsaas.standalone.demo import proofs
from gsaas.standalone.demo.person import Person
from gsaas.standalone.demo.proofs import Proof
from gsaas.standalone.demo.screen import Screen

WHOLE = ("-l", "-ncgpus=2")
SHARED = ("-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
LOCAL_SHARED = ("-l", "-ncgpus=8", "-poolmem=4096", "-mode=shared", "-locality=local")
LOCAL_WHOLE = ("-l", "-ncgpus=2", "-locality=local")

Lease = dict[str, Any]


class Story:
    """Tells it, and keeps the sentences of the proofs that failed in `failed`."""

    def __init__(self, screen: Screen, tenant: Person, admin: Person) -> None:
        self._screen = screen
        self._tenant = tenant
        self._admin = admin
        self.failed: list[str] = []

    def launch_all(self) -> None:
        """Every launch, with the pool full before the last one."""
        self._screen.heading("The pool, as its administrator sees it")
        self._admin.type("gpus")

        self._screen.heading("1. Two whole GPUs, wherever they are")
        first = self._launch(WHOLE)

        self._screen.heading("2. Two cGPUs of 2048 MiB, on GPUs that others may share")
        second = self._launch(SHARED)
        self._prove(proofs.led_apart(first, second))

        self._screen.heading("3. Eight cGPUs of 4096 MiB, on the host that runs the VM")
        self._prove(proofs.all_on_one_host(self._launch(LOCAL_SHARED)))

        self._screen.heading("4. Two whole GPUs, on the host that runs the VM")
        self._refused(LOCAL_WHOLE)
        self._screen.say("So the first VM has to go.")
        self._terminate(first)
        self._prove(proofs.all_on_one_host(self._launch(LOCAL_WHOLE)))

        self._screen.heading("What is in use now")
        self._admin.type("gpus")
        self._prove(proofs.never_more_than_there_is(self._gpus()))

    def terminate_all(self) -> None:
        """Give everything back."""
        self._screen.heading("5. Everything is given back")
        for lease in self._leases():
            self._terminate(lease)
        self._tenant.type("list")

    def _launch(self, words: tuple[str, ...]) -> Lease:
        """Launch, then prove what the launch promised. Returns the lease as administrators see it."""
        known = {lease["id"] for lease in self._leases()}
        if not self._tenant.type(*words):
            raise RuntimeError(f"gsaas {shlex.join(words)} should have been granted")
        (lease_id,) = {lease["id"] for lease in self._leases()} - known
        lease = self._admin.ask(f"/v1/leases/{lease_id}")["lease"]
        self._tenant.type("env", lease_id)
        self._prove(
            self._masked(lease), proofs.daemons_of_their_own(lease), *self._reachable(lease)
        )
        return lease

    def _masked(self, lease: Lease) -> Proof:
        answer = self._tenant.ask(f"/v1/leases/{lease['id']}/environment")
        return proofs.environment_is_masked(answer["environment"], lease)

    def _reachable(self, lease: Lease) -> list[Proof]:
        """What the VM reaches, tried from inside it, against what it should."""
        mine = [device["masked_address"] for device in lease["devices"]]
        beyond = proofs.address_after(mine[-1])
        hosts = {g["host"]: g["daemon_address"] for g in self._gpus() if g["index"] == 0}
        probes = self._tenant.probe(lease["id"], [*mine, beyond, *hosts.values()])
        return [
            *proofs.daemons_answer(lease, probes),
            proofs.unanswered(beyond, "which it was not given", probes),
            *(
                proofs.unanswered(address, f"the real address of {host}", probes)
                for host, address in sorted(hosts.items())
            ),
        ]

    def _refused(self, words: tuple[str, ...]) -> None:
        before = self._leases(), self._gpus()
        granted = self._tenant.type(*words)
        untouched = (self._leases(), self._gpus()) == before
        self._prove(Proof(not granted and untouched, "it is refused, and nothing was changed"))

    def _terminate(self, lease: Lease) -> None:
        """End a lease by its VM's id, then look whether its GPUs know it any more."""
        self._tenant.type("-t", f"-id={lease['server']['id']}")
        still = [gpu["uuid"] for gpu in self._gpus() if lease["id"] in gpu["leases"]]
        gone = lease["id"] not in {other["id"] for other in self._leases()}
        self._prove(Proof(gone and not still, "the lease is gone, and no GPU is held by it"))

    def _leases(self) -> list[Lease]:
        return self._tenant.ask("/v1/leases")["leases"]

    def _gpus(self) -> list[dict[str, Any]]:
        return self._admin.ask("/v1/gpus")["gpus"]

    def _prove(self, *given: Proof) -> None:
        for proof in given:
            self._screen.proof(proof.holds, proof.sentence)
            if not proof.holds:
                self.failed.append(proof.sentence)
        self._screen.blank()
