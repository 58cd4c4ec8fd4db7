# SPDX-License-Identifier: Apache-2.0
"""The operator's prices of GPUs, and what usage costs. Pure; money is decimal throughout."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from gsaas.objects.device_kinds import CPU
from gsaas.objects.gpu import Gpu

CENT = Decimal("0.01")
_EXACT = Decimal("0.000001")
"""Hours that a database has added up as floating-point numbers are taken as so many."""
LARGEST = Decimal(10**9)


@dataclass(frozen=True)
class Prices:
    """What a whole GPU costs for an hour; a share costs its part of the GPU's memory."""

    by_model: Mapping[str, Decimal]
    """Model -> price; `cpu` is that of every CPU device."""
    currency: str = ""

    @classmethod
    def read(cls, texts: Mapping[str, str], currency: str = "") -> Prices:
        """Return the prices in *texts*, by model; raises `ValueError` for one that is no number, or negative."""
        found = {}
        for model, text in texts.items():
            try:
                found[model] = Decimal(text)
            except InvalidOperation:
                found[model] = Decimal("NaN")
            if not (found[model].is_finite() and 0 <= found[model] <= LARGEST):
                raise ValueError(
                    f"[usage]prices has {text!r} for {model}, which is no price; write it like 2.50"
                )
        return cls(found, currency)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self.by_model)

    def cost(self, gpu_hours: Mapping[str, float]) -> Decimal:
        """Return what so many *gpu_hours* of each model cost, rounded to cents; models without a price cost nothing."""
        exact = sum(
            (
                Decimal(hours).quantize(_EXACT) * self.by_model[model]
                for model, hours in gpu_hours.items()
                if model in self.by_model
            ),
            Decimal(0),
        )
        return exact.quantize(CENT, ROUND_HALF_UP)

    def unpriced(self, gpu_hours: Mapping[str, float]) -> float:
        """Return the GPU-hours of models that have no price."""
        unpriced = (hours for model, hours in gpu_hours.items() if model not in self.by_model)
        return sum(unpriced, 0.0)


def priced_as(gpu: Gpu) -> str:
    """Return what names the price of *gpu*: its model, or `cpu`."""
    return CPU if gpu.kind == CPU else gpu.model


def models_text(parts: Iterable[tuple[Gpu, int]]) -> str:
    """Return which models a lease has, as its row stores it: JSON of each model's part of the lease's GPUs.

    *parts* are the GPUs and the MiB of them that the lease claims. Most leases have one model: `{"A100": 1.0}`. Leases
    with the same models in the same parts have the same text, by which the database adds up their hours.
    """
    gpus: dict[str, float] = defaultdict(float)
    for gpu, memory_mb in parts:
        gpus[priced_as(gpu)] += memory_mb / gpu.memory_mb
    total = sum(gpus.values())
    return json.dumps({model: round(part / total, 6) for model, part in sorted(gpus.items())})


def hours_by_model(gpu_hours: float, models: str | None) -> dict[str, float]:
    """Return so many *gpu_hours* of a lease by model; undo `models_text`.

    Those of a lease from before models were stored are hours of the model `""`.
    """
    parts: dict[str, float] = {"": 1.0} if models is None else json.loads(models)
    return {model: gpu_hours * part for model, part in parts.items()}
