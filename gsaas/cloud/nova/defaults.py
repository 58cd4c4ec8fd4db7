# SPDX-License-Identifier: Apache-2.0
"""Chooses image, flavor and network for a tenant who names none, as the operator's options say. Pure.

1. A default is one of the objects that the caller's project may use: the options give no access to anything.
2. Of several that an option could mean, the project's own come first, then those shared with it, then those of all.
   Of equally near ones it is the newest image or the smallest flavor. Networks have no such order: then none is chosen.
3. Any project may share a network with any other, under any name and tag, and would see what a VM sends there. So a
   shared network is a default by its id only.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gsaas.cloud.nova.requests import AUTO

NOUNS = {"imageRef": "image", "flavorRef": "flavor", "networks": "network"}
"""What a field of a server names."""
MOST_NAMES = 10
"""Names of objects in a message."""


class Reach(enum.IntEnum):
    """Whose an object is, nearest first."""

    OWN = 0
    SHARED = 1
    """Another project has shared it with this one."""
    PUBLIC = 2


@dataclass(frozen=True)
class Offer:
    """An image, a flavor or a network that a project may use."""

    id: str
    name: str
    reach: Reach = Reach.PUBLIC
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Properties of an image, extra specs of a flavor."""
    tags: Collection[str] = ()
    order: tuple[float, ...] = ()
    """By which equally near ones are sorted: the first is the newest image, the smallest flavor."""


@dataclass(frozen=True)
class Default:
    """What an option says: how to find the default."""

    name: str | None = None
    """A name or an id."""
    key: str | None = None
    value: str | None = None
    """The property KEY has this value; without KEY, it is a tag."""

    def fits(self, offer: Offer) -> bool:
        """Return whether *offer* may be meant, by another way than its id."""
        if self.name is not None:
            return offer.name == self.name
        if self.key is not None:
            return offer.properties.get(self.key) == self.value
        return self.value in offer.tags


@dataclass(frozen=True)
class Missing:
    """A field that a tenant has to name."""

    field: str
    names: tuple[str, ...]
    """Names of what the project may use, at most `MOST_NAMES`."""
    more: int
    """How many more there are."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the API shows it."""
        return {"field": self.field, "names": list(self.names), "more": self.more}


def parse(field: str, text: str | None) -> Default | None:
    """Return the default for a field of a server; None for an option that is unset, and for `auto`.

    Raises `ValueError` if the *text* of the option cannot be understood.
    """
    noun = NOUNS[field]
    if not text or (noun == "network" and text == AUTO):
        return None
    form, _, rest = text.partition(":")
    if noun == "network" and form == "tag" and rest:
        return Default(value=rest)
    if noun != "network" and form == "property":
        key, given, value = rest.partition("=")
        if not (key and given):
            raise ValueError(
                f"[nova]default_{noun} is {text!r}; a property is written property:KEY=VALUE"
            )
        return Default(key=key, value=value)
    return Default(name=text)


def configured(options: Any) -> dict[str, Default | None]:
    """Return the defaults by field, as the *options* of the section [nova] say. Raises `ValueError`."""
    return {field: parse(field, options[f"default_{noun}"]) for field, noun in NOUNS.items()}


def choose(noun: str, default: Default | None, offers: Sequence[Offer]) -> Offer | None:
    """Return which of *offers* the default is; None if it is none of them, or could be several."""
    if default is None:
        return offers[0] if noun == "network" and len(offers) == 1 else None
    for offer in offers:
        if offer.id == default.name:
            return offer
    found = [offer for offer in offers if default.fits(offer)]
    if noun == "network":
        found = [offer for offer in found if offer.reach is Reach.OWN]
        return found[0] if len(found) == 1 else None
    return min(found, key=lambda offer: (offer.reach, offer.order), default=None)


def public(offers: Sequence[Offer]) -> list[Offer]:
    """Return those of *offers* that all projects may use."""
    return [offer for offer in offers if offer.reach is Reach.PUBLIC]


def complete(
    fields: Sequence[str],
    defaults: Mapping[str, Default | None],
    offers: Mapping[str, Sequence[Offer]],
    *,
    allocates: bool,
) -> tuple[dict[str, Any], list[str], list[Missing]]:
    """Return the values of *fields* that have a default, what was chosen in words, and the fields without a default.

    *defaults* and *offers* are by field; *allocates* says whether Neutron would make a network for the project.
    """
    values: dict[str, Any] = {}
    chosen, missing = [], []
    for field in fields:
        noun = NOUNS[field]
        offer = choose(noun, defaults[field], offers[field])
        if offer is not None:
            values[field] = [{"uuid": offer.id}] if noun == "network" else offer.id
            chosen.append(f"{noun} {offer.name}")
        elif noun == "network" and defaults[field] is None and allocates and not offers[field]:
            values[field] = AUTO
            chosen.append("network that Neutron makes for your project")
        else:
            missing.append(_missing(field, offers[field]))
    return values, chosen, missing


def explain(missing: Sequence[Missing]) -> str:
    """Return a sentence on the fields that a tenant has to name, by their names in the API."""
    return "the cloud has no default for what the VM needs: " + "; ".join(
        f"server.{each.field}: the {NOUNS[each.field]}, {_choices(each)}" for each in missing
    )


def _missing(field: str, offers: Sequence[Offer]) -> Missing:
    named = sorted(offers, key=lambda offer: (offer.reach, offer.name))
    if field == "flavorRef":
        named = sorted(offers, key=lambda offer: offer.order)
    names = tuple(dict.fromkeys(offer.name or offer.id for offer in named))
    return Missing(field, names[:MOST_NAMES], max(0, len(names) - MOST_NAMES))


def _choices(missing: Missing) -> str:
    if not missing.names:
        return "of which your project can use none"
    more = f" and {missing.more} more" if missing.more else ""
    return f"one of {', '.join(missing.names)}{more}"
