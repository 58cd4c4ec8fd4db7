"""What a scheduling policy is: the contract of the entry points `gsaas.gpgpums.policies`.

A policy puts GPUs in order, best first. It cannot break anything: the pool takes the first GPU
that it can grant and passes over the rest. It is a pure function of what it is shown: the same
pool and the same request get the same order, in every worker.

Its file's docstring is what operators read of it: the first line the rule, then what it is good
for and what that costs.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from gsaas.gpgpums.candidates import Candidates
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class Policy(abc.ABC):
    """Chooses among fitting GPUs. One instance serves all requests of a process."""

    name: ClassVar[str]
    """What callers write after `-policy=`; the same as the entry point's name."""
    source: ClassVar[str] = ""
    """Where the rule comes from, in a few words."""
    looks_at_utilisation: bool = False
    """Does it need `Gpu.utilisation`? It is read only for those that do."""
    looks_at_mix: bool = False
    """Does it need `Candidates.mix`? It is kept up to date only for those that do."""

    def configure(self, conf: Any, known: Mapping[str, Policy]) -> None:  # noqa: B027 - most have no knobs
        """Take over knobs from the configuration, before the first request.

        *conf* is an `oslo_config.cfg.ConfigOpts`; a policy of another package may register options
        of its own with it. *known* are all policies, by name. Raises `ValueError` for a value that
        cannot be used.
        """

    @abc.abstractmethod
    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        """Yield GPUs for the next cGPU of *request*, best first.

        Called once for each cGPU; those placed before it are part of the picture. Be lazy if you
        can: most of the time only the first GPU is taken.
        """
