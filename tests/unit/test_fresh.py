# SPDX-License-Identifier: Apache-2.0
"""What ./dev fresh runs on a fresh root, with which network, and what it refuses."""

from __future__ import annotations

import pytest

from tests import fresh
from tests.fresh import NotPossible, Run


def test_without_names_it_shows_that_a_beginner_gets_along():
    assert fresh.runs([]) == [Run(("demo",), "demo"), Run(("test", "quick"), "quick")]


def test_folders_of_tests_are_run_one_by_one_and_those_that_fetch_get_a_network():
    assert fresh.runs(["tests/kernel/", "./tests/images"]) == [
        Run(("test", "tests/kernel"), "tests/kernel"),
        Run(("test", "tests/images"), "tests/images", fetches=True),
    ]


@pytest.mark.parametrize("name", ["tests/openstack", "tests/openstack/test_nova.py", "tests"])
def test_a_whole_openstack_is_refused(name):
    with pytest.raises(NotPossible, match="a whole OpenStack needs"):
        fresh.runs([name])


@pytest.mark.parametrize("name", ["gsaas", "tests/none", "bench", ".."])
def test_only_tests_that_are_there_are_run(name):
    with pytest.raises(NotPossible, match="name folders of tests"):
        fresh.runs([name])


def test_the_sources_of_apt_are_those_of_the_release():
    here = "URIs: http://mirror/debian\nSuites: bookworm bookworm-updates\n"
    assert fresh.of_release(here, "bookworm", "trixie") == (
        "URIs: http://mirror/debian\nSuites: trixie trixie-updates\n"
    )


def test_folders_that_pip_is_told_of_are_found():
    listed = """\
:env:.find-links='/srv/wheels'
global.cert='/etc/ssl/ca.crt'
global.extra-index-url='https://host/simple file:///srv/index/simple'
global.index-url='https://host/pypi/+simple/'
"""
    assert fresh.folders_named(listed) == ["/etc/ssl/ca.crt", "/srv/index", "/srv/wheels"]
