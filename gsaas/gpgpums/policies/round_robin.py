"""round-robin: the next GPU after the one that was given last, in pool order and around.

It deals GPUs out like cards: every GPU has its turn, whatever its size and load, and wear and heat
spread evenly. It suits clouds of equal GPUs and many small, short leases. The price: it looks
neither at free memory nor at load, so a GPU that fits at all may get its next lease while a
better one waits for its turn, and whole GPUs are used up soon.

Which GPU was given last is stored with the claim itself, so all API workers deal from one deck,
and go on where they were after a restart.

Source: RR of NGS (Prades, Reano and Silla, Journal of Systems Architecture 151, 2024).
"""

from __future__ import annotations

from collections.abc import Iterable

from gsaas.gpgpums.candidates import Candidates
from gsaas.gpgpums.policies.base import Policy
from gsaas.objects.gpu import Gpu
from gsaas.objects.request import Request


class RoundRobin(Policy):
    name = "round-robin"
    source = "NGS, RR"

    def order(self, candidates: Candidates, request: Request) -> Iterable[Gpu]:
        return candidates.after_last_claimed()
