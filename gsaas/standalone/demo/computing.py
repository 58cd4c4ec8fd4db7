# SPDX-License-Identifier: Apache-2.0
"""The demonstration that computes: programs in VMs multiply matrices on cGPUs, which are parts of this machine's CPU.

Its middleware is TVM's RPC. What the programs compute, and how they end, proves what GSaaS promises them.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence

from gsaas.standalone.demo import proofs
from gsaas.standalone.demo.program import Program
from gsaas.standalone.demo.steps import Lease, Steps
from gsaas.standalone.demo.user import matrices

SHARE_MB = 512
"""MiB of each cGPU but that of the greedy program."""
SMALL_MB = 256
"""MiB of that one's."""
TRAINING = ("-l", "-ncgpus=2", f"-poolmem={SHARE_MB}", "-mode=shared", "-name=training")
NEIGHBOUR = ("-l", "-ncgpus=1", f"-poolmem={SHARE_MB}", "-mode=shared", "-name=neighbour")
GREEDY = ("-l", "-ncgpus=1", f"-poolmem={SMALL_MB}", "-mode=shared", "-name=greedy")


class Computing(Steps):
    """Two tenants' programs compute side by side; a third one wants more than its share."""

    introduction = """\
GSaaS on this one machine: two GPU hosts with two devices of 1024 MiB each, and a host that only runs VMs. Hosts and
VMs are network namespaces. The devices are parts of this machine's processors and memory, and they compute:
programs in the VMs reach them through TVM's RPC, as they would reach GPUs. All of GSaaS is real."""
    example = shlex.join(matrices("--rounds=20"))

    def run(self) -> None:
        self._screen.heading("The pool, as its administrator sees it")
        self._admin.run("gpus")

        self._screen.heading(f"1. Two cGPUs of {SHARE_MB} MiB, on devices that others may share")
        training = self._launch(TRAINING)
        self._screen.heading("2. A program in the VM multiplies matrices on both of them at once")
        program = self._tenant.begin_computing("training", "--rounds=20")
        self._prove(*proofs.computes(training, program.ended()))

        self._screen.heading("3. A neighbour computes meanwhile")
        neighbour = self._launch(NEIGHBOUR)
        of_neighbour = self._tenant.begin_computing("neighbour", "--endless")
        of_training = self._tenant.begin_computing("training", "--endless")
        self._prove(*(each.has_begun() for each in (of_neighbour, of_training)))

        self._screen.heading("4. A program that asks for more than its share")
        self._launch(GREEDY)
        greedy = self._tenant.begin_computing("greedy", "--allocate")
        self._prove(
            proofs.is_kept_to_its_share(SMALL_MB, greedy.ended()),
            *(each.goes_on() for each in (of_neighbour, of_training)),
        )

        self._screen.heading("5. The end of a lease ends what computes through it")
        self._end_while_it_computes(training, of_training)
        self._prove(of_neighbour.goes_on())
        self._end_while_it_computes(neighbour, of_neighbour)

    def _launch(self, words: Sequence[str]) -> Lease:
        lease = super()._launch(words)
        beyond = self._beyond(lease)
        real = [device["real_address"] for device in lease["devices"]]
        probes = self._tenant.probe(lease["id"], [beyond, *real])
        self._prove(
            self._environment_is_masked(lease),
            proofs.daemons_are_separate(lease),
            proofs.does_not_answer(beyond, "which it was not given", probes),
            *(proofs.does_not_answer(each, "a real address of its own", probes) for each in real),
        )
        return lease

    def _end_while_it_computes(self, lease: Lease, program: Program) -> None:
        """Release a lease, and prove that its program's computing was cut off by that."""
        began = time.monotonic()
        self._terminate(lease)
        self._prove(*proofs.was_cut_off(lease, began, program.ended()))
