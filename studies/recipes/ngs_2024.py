# SPDX-License-Identifier: Apache-2.0
"""Jobs done in an hour: MIG, and NGS with the policies PERF and BF (NGS paper, section 5.5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gsaas.gpgpums import policies
from studies.claims import PublishedClaim, Sample, band_text, near
from studies.ngs import hour

SEEDS = range(1, 11)
MIG = "MIG"
PLACEMENTS = {MIG: None, "performance": 18.0, "best-fit-utilisation": 30.0}
"""How jobs get GPUs -> percent more jobs done than with MIG, as published. NGS calls the policies PERF and BF."""


@dataclass(frozen=True)
class NgsRow:
    """The jobs that end within an hour, for each of several seeds."""

    placement: str
    done: float
    spread: float
    runs: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as the benchmark prints it."""
        return asdict(self)


def measure(seed: int) -> list[int]:
    """Return the jobs done with each of `PLACEMENTS`."""
    return hour.jobs_done(
        [None if name == MIG else policies.load(name) for name in PLACEMENTS], seed
    )


def rows(found: Sequence[Sequence[int]]) -> list[NgsRow]:
    """Return a row for each placement, from what `measure` returned for each seed."""
    return [
        NgsRow(name, Sample(runs).mean, Sample(runs).spread, runs)
        for name, runs in zip(PLACEMENTS, zip(*found, strict=True), strict=True)
    ]


def claims(found: Sequence[NgsRow]) -> Iterator[PublishedClaim]:
    """Yield the claims of section 5.5, with what was measured."""
    here = {row.placement: row for row in found}
    for name, published in PLACEMENTS.items():
        if published is None:
            continue
        more = Sample(
            tuple(
                100 * (run / mig - 1)
                for run, mig in zip(here[name].runs, here[MIG].runs, strict=True)
            )
        )
        yield PublishedClaim(
            f"NGS with {name} gets more jobs done in an hour than MIG",
            "Prades et al., NGS, 2024, section 5.5",
            f"{published:.0f} % more",
            f"{more.text()} % more",
            near(more.mean, published),
            band_text(),
            "which VMs run which jobs is in a figure that the text describes in part",
        )
