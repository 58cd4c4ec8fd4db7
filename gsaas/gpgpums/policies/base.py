# SPDX-License-Identifier: Apache-2.0
"""The interface of scheduling policies, for the entry points `gsaas.gpgpums.policies`.

A policy puts GPUs in order, best first. It cannot claim too much: the pool takes the first GPU that fits the request
and skips the others. A policy is a pure function: for the same pool and the same request it returns the same order, in
every process.

Operators read the docstring of its module (`gsaas policies`): the first line is the rule; the advantages and the
disadvantages follow.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from gsaas.gpgpums.candidates import Candidates
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class Policy(abc.ABC):
    """Puts the GPUs that fit a request in order. One instance serves all requests of a process."""

    name: ClassVar[str]
    """The name that requests use (`-policy=`), the same as that of the entry point."""
    source: ClassVar[str] = ""
    """The origin of the rule, in a few words."""
    looks_at_utilisation: bool = False
    """Whether it uses `Gpu.utilisation`, which is read only for such policies."""
    looks_at_mix: bool = False
    """Whether it uses `Candidates.mix`, which is kept up to date only for such policies."""

    def configure(self, conf: Any, known: Mapping[str, Policy]) -> None:  # noqa: B027 - most policies have no options
        """Read the options of the policy from the configuration, before the first request.

        *conf* is an `oslo_config.cfg.ConfigOpts`; a policy of another package may register options of its own with
        it. *known* are all policies, by name. Raises `ValueError` for a value that cannot be used.
        """

    @abc.abstractmethod
    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        """Yield GPUs for the next cGPU of *request*, best first.

        Called once for each cGPU; *candidates* takes the cGPUs into account that were placed before. Yield lazily
        if possible: most of the time only the first GPU is used.
        """
