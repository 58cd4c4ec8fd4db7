# SPDX-License-Identifier: Apache-2.0
"""The demonstration on simulated GPUs, which compute nothing: quick, with many GPUs, and wherever TVM does not run."""

from __future__ import annotations

from collections.abc import Sequence

from gsaas.standalone.demo import proofs
from gsaas.standalone.demo.proofs import Proof
from gsaas.standalone.demo.steps import Lease, Steps

WHOLE = ("-l", "-ncgpus=2")
SHARED = ("-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
LOCAL_SHARED = ("-l", "-ncgpus=8", "-poolmem=4096", "-mode=shared", "-locality=local")
LOCAL_WHOLE = ("-l", "-ncgpus=2", "-locality=local")


class Simulated(Steps):
    """Four launches on simulated GPUs; before the last one the pool is full, so that one is refused."""

    introduction = """\
GSaaS on this one machine: two GPU hosts with four GPUs of 8192 MiB each, and a host that only runs
VMs. Hosts and VMs are network namespaces; the GPUs are simulated and only answer with their names. What
is between them is real: the scheduler, the database, the API, RODVR's rules in the kernel."""
    example = "ip -brief address"

    def run(self) -> None:
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

    def _launch(self, words: Sequence[str]) -> Lease:
        lease = super()._launch(words)
        self._prove(
            self._environment_is_masked(lease),
            proofs.daemons_are_separate(lease),
            *self._vm_reaches(lease),
        )
        return lease

    def _vm_reaches(self, lease: Lease) -> list[Proof]:
        """Prove, from inside the VM, that it reaches its own masked addresses and nothing else."""
        masked = [device["masked_address"] for device in lease["devices"]]
        beyond = self._beyond(lease)
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

    def _launch_refused(self, words: Sequence[str]) -> None:
        """Launch, and prove that it is refused without any change."""
        before = self._leases(), self._gpus()
        granted = self._tenant.run(*words)
        untouched = (self._leases(), self._gpus()) == before
        self._prove(Proof(not granted and untouched, "it is refused, and nothing was changed"))
