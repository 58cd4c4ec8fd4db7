# SPDX-License-Identifier: Apache-2.0
"""An API error for people: its sentence, and the lines under it.

These are what there is to choose from, GPUs by filter, the nearest request that fits, and the request id.
"""

from __future__ import annotations

from gsaasclient.cli.cgpus import OPTIONS, to_options
from gsaasclient.cli.tables import INDENT, facts, table
from gsaasclient.times import describe_estimate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gsaasclient import ApiError


FIELDS = OPTIONS | {
    "name": "-name",
    "policy": "-policy",
    "wait": "-wait",
    "priority": "-priority",
    "reservation": "-reservation",
    "duration": "-for",
    "ends_at": "-until",
    "movable": "-movable",
    "start": "-start",
    "end": "-end",
    "status": "-status",
    "sort_key": "-sort",
    "changes-since": "-changes-since",
    "consumer.host": "-on",
    "consumer.uid": "-uid",
}
"""The options by field of a request, for messages about one that is not valid."""


SERVER_NOUNS = {"imageRef": "an image", "flavorRef": "a flavor", "networks": "a network"}
"""What a VM needs, by Nova's field."""
SERVER_OPTIONS = {"imageRef": "-image", "flavorRef": "-flavor", "networks": "-network"}
"""The options that name it."""


def sentence(error: ApiError, options: Mapping[str, str] = FIELDS) -> str:
    """Return the message of *error*, with *options* of the command line where it has fields of the API."""
    missing = error.facts.get("missing")
    if not missing:
        return _in_options(error, options)
    needed = [SERVER_NOUNS.get(each["field"], each["field"]) for each in missing]
    listed = " and ".join(filter(None, (", ".join(needed[:-1]), needed[-1])))
    return f"the VM needs {listed}, and this cloud has no default for your project; to choose from:"


def _in_options(error: ApiError, options: Mapping[str, str]) -> str:
    """Return the sentence of *error*, with the option in place of the field of the API that it begins with.

    *options* are those of the command line, by field.
    """
    path, space, rest = str(error).partition(" ")
    field = path.partition("[")[0]
    for object_name in ("lease.", "check.", "reservation.", "cgpus."):
        field = field.removeprefix(object_name)
    if error.status != 400 or field not in options:
        return str(error)
    return f"{options[field]}{space}{rest}"


def explain(
    error: ApiError,
    options: Mapping[str, str] = OPTIONS,
    server_options: Mapping[str, str] = SERVER_OPTIONS,
    wait: str = FIELDS["wait"],
) -> list[str]:
    """Return lines to print under the message of *error*.

    *options* are those of the command line for cGPUs, *server_options* those for a VM, by field of the API. *wait* is
    the option with which a request waits.
    """
    known = error.facts
    lines = _choices(known.get("missing") or [], server_options)
    lines += capacity(
        known.get("filters") or [], known.get("nearest"), known.get("relaxed"), options
    )
    if seconds := known.get("estimate_seconds"):
        lines.append(f"{INDENT}or wait with {wait}: {describe_estimate(seconds)}")
    if error.status == 401:
        lines.append(f"{INDENT}the API does not accept the token of your credentials")
    if error.request_id:
        lines.append(f"{INDENT}request {error.request_id}")
    return lines


def _choices(missing: list[dict[str, Any]], options: Mapping[str, str]) -> list[str]:
    """Return a line for each field that has to be named, with what it may be."""
    if not missing:
        return []
    return facts(
        (options.get(each["field"], each["field"]), _names(each["names"], each["more"]))
        for each in missing
    ).splitlines()


def _names(names: list[str], more: int) -> str:
    if not names:
        return "none that your project can use: make one, or ask your operator"
    return ", ".join(names) + (f" and {more} more" if more else "")


def capacity(
    filters: list[dict[str, Any]],
    nearest: dict[str, Any] | None,
    relaxed: str | None,
    options: Mapping[str, str] = OPTIONS,
) -> list[str]:
    """Return how many GPUs each filter excluded, and the largest similar request that would fit now.

    *nearest* is that request, as the API's `cgpus`; *relaxed* names the requirement that it lacks, if it lacks one.
    """
    lines = []
    if filters:
        rows = [(f["filter"], f["gpus"]) for f in filters]
        lines += table(("filter", "GPUs it left out"), rows).splitlines()
    if nearest:
        option = options.get(relaxed or "", relaxed)
        without = f", without {option}" if relaxed else ""
        lines.append(f"{INDENT}this would fit now{without}: {to_options(nearest, options)}")
    return lines
