"""What a scheduling policy is: the contract of the entry points `gsaas.gpgpums.policies`.

A policy puts GPUs in order, best first. It cannot break anything: the pool takes the first GPU
that it can grant and passes over the rest.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gsaas.gpgpums.pool import Candidates
    from gsaas.gpgpums.state import Gpu, Request


class Policy(abc.ABC):
    """Chooses among fitting GPUs. One instance serves all requests of a process."""

    name: ClassVar[str]
    """What callers write after `-policy=`; the same as the entry point's name."""

    @abc.abstractmethod
    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        """Yield GPUs for the next cGPU of *request*, best first.

        Called once for each cGPU; those placed before it are part of the picture. Be lazy if you
        can: most of the time only the first GPU is taken.
        """
