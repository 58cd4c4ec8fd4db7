# SPDX-License-Identifier: Apache-2.0
"""Which image, flavor and network a tenant gets who names none."""

from __future__ import annotations

from typing import Any

import pytest

from gsaas.cloud.nova import defaults, requests
from gsaas.cloud.nova.defaults import Default, Missing, Offer, Reach
from gsaas.exceptions import ServerRefused

FIELDS = ("imageRef", "flavorRef", "networks")
CIRROS = Offer("i-1", "cirros", order=(-100.0,))
DEBIAN = Offer("i-2", "debian", order=(-200.0,))
TINY = Offer("f-1", "tiny", order=(64, 1, 1))
SMALL = Offer("f-2", "small", order=(512, 1, 1))
PRIVATE = Offer("n-1", "private", Reach.OWN)
LAN = Offer("n-2", "lan", Reach.OWN)
OFFERS = {"imageRef": [CIRROS, DEBIAN], "flavorRef": [SMALL, TINY], "networks": [PRIVATE, LAN]}


def complete(
    fields: tuple[str, ...] = FIELDS,
    offers: dict[str, list[Offer]] = OFFERS,
    allocates: bool = False,
    **options: str,
) -> Any:
    """Return what `defaults.complete` does with these options of [nova], by their names without `default_`."""
    settings = {"image": None, "flavor": None, "network": "auto", **options}
    configured = {
        field: defaults.parse(field, settings[noun]) for field, noun in defaults.NOUNS.items()
    }
    return defaults.complete(fields, configured, offers, allocates=allocates)


def test_an_operators_defaults_are_found_by_name_or_id_and_said():
    values, chosen, missing = complete(image="cirros", flavor="f-1", network="private")
    assert values == {"imageRef": "i-1", "flavorRef": "f-1", "networks": [{"uuid": "n-1"}]}
    assert chosen == ["image cirros", "flavor tiny", "network private"]
    assert missing == []


def test_all_that_a_tenant_has_to_name_is_said_at_once_with_what_there_is_to_choose():
    values, _, missing = complete()
    assert values == {}
    assert missing == [
        Missing("imageRef", ("cirros", "debian"), 0),
        Missing("flavorRef", ("tiny", "small"), 0),
        Missing("networks", ("lan", "private"), 0),
    ]
    assert defaults.explain(missing) == (
        "the cloud has no default for what the VM needs: server.imageRef: the image, one of cirros, debian; "
        "server.flavorRef: the flavor, one of tiny, small; server.networks: the network, one of lan, private"
    )


def test_of_many_to_choose_from_some_are_named_and_the_others_counted():
    images = [Offer(f"i-{n}", f"image-{n:02}") for n in range(13)]
    _, _, (missing,) = complete(("imageRef",), {"imageRef": images})
    assert (len(missing.names), missing.more) == (10, 3)
    assert defaults.explain([missing]).endswith("image-08, image-09 and 3 more")


def test_where_there_is_nothing_to_choose_the_message_says_so():
    _, _, missing = complete(("networks",), {"networks": []})
    assert defaults.explain(missing).endswith("the network, of which your project can use none")


def test_a_default_that_the_project_may_not_use_is_missing():
    _, _, (missing,) = complete(("imageRef",), image="secret")
    assert missing.field == "imageRef"


# -- images ------------------------------------------------------------------------------------------


def test_by_a_property_it_is_the_newest_image_that_has_it():
    offers = {
        "imageRef": [
            Offer("old", "a", properties={"gpu": "yes"}, order=(-1.0,)),
            Offer("new", "b", properties={"gpu": "yes"}, order=(-2.0,)),
            Offer("newest", "c", properties={"gpu": "no"}, order=(-3.0,)),
        ]
    }
    values, _, _ = complete(("imageRef",), offers, image="property:gpu=yes")
    assert values == {"imageRef": "new"}


@pytest.mark.parametrize("option", ["debian", "property:gpu=yes"])
def test_a_projects_own_image_comes_before_a_shared_one_and_that_before_a_public_one(option: str):
    has = {"gpu": "yes"}
    public = Offer("public", "debian", Reach.PUBLIC, has, order=(-3.0,))
    shared = Offer("shared", "debian", Reach.SHARED, has, order=(-2.0,))
    own = Offer("own", "debian", Reach.OWN, has, order=(-1.0,))
    for offers, chosen in (
        ([public, shared, own], "own"),
        ([public, shared], "shared"),
        ([public], "public"),
    ):
        values, _, _ = complete(("imageRef",), {"imageRef": offers}, image=option)
        assert values == {"imageRef": chosen}


def test_the_value_of_a_property_may_have_any_character():
    assert defaults.parse("imageRef", "property:a=b=c") == Default(key="a", value="b=c")


# -- flavors -----------------------------------------------------------------------------------------


def test_by_a_property_it_is_the_smallest_flavor_that_has_the_extra_spec():
    has = {"gsaas:default": "true"}
    offers = {
        "flavorRef": [
            Offer("large", "l", properties=has, order=(4096, 2, 10)),
            Offer("small", "s", properties=has, order=(512, 1, 10)),
            Offer("tiny", "t", order=(64, 1, 1)),
        ]
    }
    values, _, _ = complete(("flavorRef",), offers, flavor="property:gsaas:default=true")
    assert values == {"flavorRef": "small"}


# -- networks ----------------------------------------------------------------------------------------


def test_a_projects_only_network_is_its_default():
    values, _, _ = complete(("networks",), {"networks": [PRIVATE]})
    assert values == {"networks": [{"uuid": "n-1"}]}


def test_neutron_makes_a_network_for_a_project_that_can_use_none():
    values, chosen, _ = complete(("networks",), {"networks": []}, allocates=True)
    assert values == {"networks": "auto"}
    assert chosen == ["network that Neutron makes for your project"]


def test_neutron_makes_none_where_an_operator_has_named_one_or_there_are_several():
    for offers, network in (([], "private"), ([PRIVATE, LAN], "auto")):
        values, _, _ = complete(("networks",), {"networks": offers}, True, network=network)
        assert values == {}


def test_a_network_is_found_by_a_tag():
    tagged = Offer("n-3", "x", Reach.OWN, tags=("gpus",))
    values, _, _ = complete(("networks",), {"networks": [PRIVATE, tagged]}, network="tag:gpus")
    assert values == {"networks": [{"uuid": "n-3"}]}


@pytest.mark.parametrize("option", ["private", "tag:gpus"])
def test_a_network_that_another_project_shares_is_no_default_by_its_name_or_tag(option: str):
    """Its owner would see what the VM sends."""
    foreign = Offer("n-9", "private", Reach.SHARED, tags=("gpus",))
    values, _, _ = complete(("networks",), {"networks": [foreign]}, network=option)
    assert values == {}


def test_a_network_that_projects_share_is_the_default_by_its_id():
    shared = Offer("n-9", "provider", Reach.SHARED)
    values, _, _ = complete(("networks",), {"networks": [shared, LAN]}, network="n-9")
    assert values == {"networks": [{"uuid": "n-9"}]}


def test_of_two_networks_with_the_name_none_is_chosen():
    twin = Offer("n-8", "private", Reach.OWN)
    values, _, _ = complete(("networks",), {"networks": [PRIVATE, twin]}, network="private")
    assert values == {}


# -- options and requests ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["property:", "property:gpu", "property:=yes"])
def test_an_option_that_cannot_be_read_is_refused_by_its_name(text: str):
    with pytest.raises(ValueError, match=r"\[nova\]default_flavor is .*property:KEY=VALUE"):
        defaults.parse("flavorRef", text)


@pytest.mark.parametrize(
    ("request_", "missing"),
    [
        ({}, ["imageRef", "flavorRef", "networks"]),
        ({"image": "i", "flavor": "f"}, ["networks"]),
        ({"imageRef": None, "flavor": 1, "network": "n"}, ["imageRef"]),
        ({"block_device_mapping_v2": [{}], "networks": "auto"}, ["flavorRef"]),
    ],
)
def test_only_what_the_tenant_leaves_out_is_added(request_: dict[str, Any], missing: list[str]):
    assert requests.missing(request_) == missing


def test_a_completed_request_has_what_the_tenant_named_and_what_was_added():
    given = {"name": "vm", "image": None, "user_data": "eA==", "key_name": "k"}
    added = {"imageRef": "i", "flavorRef": "f", "networks": [{"uuid": "n"}]}
    completed = requests.completed(given, added)
    assert completed == {"name": "vm", "user_data": "eA==", "key_name": "k", **added}
    assert requests.missing(completed) == []


def test_a_vm_without_a_network_is_refused_and_not_completed():
    for none in ("none", [], None):
        with pytest.raises(ServerRefused, match="could not reach its cGPUs"):
            requests.missing({"networks": none})
