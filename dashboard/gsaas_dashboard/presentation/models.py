# SPDX-License-Identifier: Apache-2.0
"""The models of GPUs that the launch page offers, each with how much of it is free."""

from __future__ import annotations

from collections.abc import Iterable

from gsaasclient.sdk.gpus import Model

ANY = (("cuda/", "any GPU of NVIDIA"), ("cpu/", "any CPU device"))
"""What is offered besides the models: any GPU of a kind. A value is a kind, a slash, and the model if it has one."""


def choices(models: Iterable[Model]) -> list[tuple[str, str]]:
    """Return value and text of each choice; models that differ only in memory or compute capability are one choice."""
    equal: dict[tuple[str, str], list[Model]] = {}
    for model in models:
        equal.setdefault((model.kind, model.model), []).append(model)
    return [*ANY, *((f"{kind}/{name}", text(name, found)) for (kind, name), found in equal.items())]


def text(name: str, models: list[Model]) -> str:
    """Return a model's name, the memory of one GPU, and what is free: `A100, 40960 MiB: 3 of 4 idle, …`."""
    least, most = (pick(model.memory_mb for model in models) for pick in (min, max))
    memory = f"{most}" if least == most else f"{least} to {most}"
    idle, gpus, free = (
        sum(getattr(model, field) for model in models) for field in ("idle", "gpus", "free_mb")
    )
    if not free:
        return f"{name}, {memory} MiB: none free"
    largest = max(model.largest_share_mb for model in models)
    return f"{name}, {memory} MiB: {idle} of {gpus} idle, shares of up to {largest} MiB"


def requirement(choice: str) -> dict[str, str]:
    """Return what a choice asks for: `kind` and `gpu_model` of a request, as far as it names them."""
    kind, _, model = choice.partition("/")
    return {name: value for name, value in (("kind", kind), ("gpu_model", model)) if value}
