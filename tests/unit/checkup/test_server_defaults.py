# SPDX-License-Identifier: Apache-2.0
"""`gsaas-manage check` says whether launches that name no image, flavor or network get one."""

from __future__ import annotations

from gsaas.checkup import server_defaults
from gsaas.checkup.findings import Level
from gsaas.cloud.nova.defaults import Offer, Reach, public


def test_an_option_that_is_not_set_is_named_with_what_it_may_be():
    finding = server_defaults.for_all("image", None, None)
    assert finding.level is Level.WARN
    assert finding.said == "[nova]default_image is not set: each launch has to name one"
    assert finding.todo == "set it to the name of a public image, or to property:KEY=VALUE"


def test_a_default_that_only_some_projects_have_is_a_warning():
    finding = server_defaults.for_all("flavor", "small", None)
    assert finding.level is Level.WARN
    assert "[nova]default_flavor is small, and no public flavor is that" in finding.said


def test_a_default_that_all_projects_have_is_named():
    finding = server_defaults.for_all("image", "property:gpu=yes", Offer("i-1", "debian"))
    assert (finding.level, finding.said) == (Level.OK, "image debian (i-1)")


def test_what_one_project_has_is_not_public():
    mine, shared, all_ = (Offer(each.name, "debian", each) for each in Reach)
    assert public([mine, shared, all_]) == [all_]


def test_a_network_that_no_project_has_is_a_warning_and_others_are_counted():
    assert server_defaults.of_projects("private", []).level is Level.WARN
    found = [Offer(f"n-{n}", "private", Reach.SHARED) for n in range(3)]
    assert server_defaults.of_projects("private", found).said == (
        "network private, of which there are 3"
    )


def test_without_a_network_of_the_operators_it_says_what_projects_get():
    assert "Neutron makes one for" in server_defaults.automatic(allocates=True).said
    assert "have to name one" in server_defaults.automatic(allocates=False).said
