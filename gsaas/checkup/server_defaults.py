# SPDX-License-Identifier: Apache-2.0
"""Check that tenants who name no image, flavor or network for their VM get the operator's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gsaas import exceptions
from gsaas.checkup.findings import Finding, fail, ok, reason, warn

if TYPE_CHECKING:
    from gsaas.cloud.nova.clients import Clients
    from gsaas.cloud.nova.defaults import Offer

PART = "VM defaults"


def check(options: Any, openstack: Clients) -> Iterator[Finding]:
    """Look up the defaults of the section [nova], whose *options* these are, as the service user."""
    # Imported here: they take long to import, and are needed only with Nova.
    from gsaas.cloud.nova import clients, defaults, offers

    try:
        wanted = defaults.configured(options)
    except ValueError as error:
        yield fail(PART, str(error), "correct it: gsaas-api does not start with it")
        return
    asking = offers.of(openstack, None)
    network = wanted["networks"]
    try:
        for field in ("imageRef", "flavorRef"):
            noun, default = defaults.NOUNS[field], wanted[field]
            found = None
            if default is not None:
                found = defaults.choose(noun, default, defaults.public(asking[field]()))
            yield for_all(noun, options[f"default_{noun}"], found)
        if network is None:
            yield automatic(allocates=offers.allocates_network(openstack, None))
        else:
            found_networks = offers.networks_like(openstack, network)
            yield of_projects(options.default_network, found_networks)
    except (clients.RequestRejected, exceptions.CloudUnavailable) as error:
        yield fail(
            PART, f"they cannot be looked up: {reason(error.__cause__ or error)}", "repair that"
        )


def for_all(noun: str, option: str | None, found: Offer | None) -> Finding:
    """Return whether the *option* for the image or the flavor, None if it is unset, is *found* by all projects."""
    how = f"set it to the name of a public {noun}, or to property:KEY=VALUE"
    if option is None:
        return warn(PART, f"[nova]default_{noun} is not set: each launch has to name one", how)
    if found is None:
        return warn(
            PART,
            f"[nova]default_{noun} is {option}, and no public {noun} is that: each launch has to name one, except of "
            "projects that have one of their own",
            how,
        )
    return ok(PART, f"{noun} {found.name} ({found.id})")


def of_projects(option: str, found: Sequence[Offer]) -> Finding:
    """Return whether any of the networks of all projects, *found*, is what the *option* says."""
    if found:
        return ok(PART, f"network {option}, of which there are {len(found)}")
    return warn(
        PART,
        f"[nova]default_network is {option}, and no project has such a network: each launch has to name one",
        "set it to the name of networks that projects have, to tag:TAG, to the id of a shared one, or to auto",
    )


def automatic(*, allocates: bool) -> Finding:
    """Return what launches without a network get where none is configured."""
    otherwise = (
        "Neutron makes one for projects that can use none"
        if allocates
        else "launches of other projects have to name one, as Neutron makes none"
    )
    return ok(PART, f"network of the project, if it can use only one; {otherwise}")
