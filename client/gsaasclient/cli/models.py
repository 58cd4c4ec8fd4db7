# SPDX-License-Identifier: Apache-2.0
"""`gsaas models`: which models of GPUs the cloud has, and how much of each is free."""

from __future__ import annotations

from types import SimpleNamespace

from gsaasclient.api import MODELS_VERSION
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.output import brief_table, print_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gsaasclient import Client

    Model = dict[str, Any]
    """A model as the API shows it."""

COLUMNS = (
    Column("model", brief=lambda model: brief_model(model["model"]), least=8),
    Column("kind"),
    Column("compute_capability", "capability"),
    Column("memory_mb", "MiB"),
    Column("gpus", "GPUs"),
    Column("idle"),
    Column("free_mb", "MiB free"),
    Column("largest_share_mb", "largest share"),
)


def models(client: Client, args: SimpleNamespace) -> int:
    """List the models of GPUs that new leases may get."""
    columns = select(COLUMNS, args.c)
    found = of(client)
    print_list(args, columns, found, {"models": found})
    return 0


def of(client: Client) -> list[Model]:
    """Return the models that the API lists. Raises `ApiError`, for an older API as well."""
    answer = client.request("GET", "/v1/models", version=MODELS_VERSION)
    found: list[Model] = answer["models"]
    return found


def describe(found: list[Model]) -> str:
    """Return the table of these models."""
    return brief_table(COLUMNS, found)


VENDOR = "NVIDIA "
"""With what most models begin; a table that has to be narrow leaves it out."""


def brief_model(model: str) -> str:
    """Return a model without its vendor: `A100-SXM4-80GB`."""
    return model.removeprefix(VENDOR)
