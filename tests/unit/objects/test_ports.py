# SPDX-License-Identifier: Apache-2.0
"""Ports for daemons of single cGPUs: free ones, spread out, never one twice."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas import exceptions
from gsaas.objects.ports import NoFreePort, PortRange


@given(
    size=st.integers(1, 30),
    taken=st.sets(st.integers(19990, 20040)),
    count=st.integers(1, 10),
    name=st.text(max_size=5),
)
def test_ports_are_distinct_free_and_of_the_range_or_refused(size, taken, count, name):
    ports = PortRange(20000, 20000 + size - 1)
    names = [f"{name}-{number}" for number in range(count)]
    free = {port for port in range(20000, 20000 + size) if port not in taken}
    if count > len(free):
        with pytest.raises(NoFreePort):
            ports.choose(taken, names)
    else:
        chosen = ports.choose(taken, names)
        assert len(set(chosen)) == count
        assert set(chosen) <= free


@given(
    size=st.integers(1, 60),
    each=st.integers(1, 5),
    taken=st.dictionaries(st.integers(19990, 20070), st.integers(1, 5)),
    count=st.integers(1, 10),
)
def test_daemons_with_several_ports_share_none_of_them_with_another_one(size, each, taken, count):
    """Also not with the daemon of another driver, whatever number of ports up to `each` that one has."""
    ports = PortRange(20000, 20000 + size - 1, each)
    before = {port + n for port, number in taken.items() for n in range(min(number, each))}
    try:
        chosen = ports.choose(taken, [str(number) for number in range(count)])
    except NoFreePort:
        return
    after = [port + n for port in chosen for n in range(each)]
    assert len(set(after)) == count * each
    assert all(port in ports for port in after)
    assert not before & set(after)


def test_a_range_is_full_when_no_daemon_with_all_its_ports_fits_any_more():
    ports = PortRange(20000, 20007, each=3)
    first = ports.choose([], ["a", "b"])
    assert sorted(first) == [20000, 20003], "20006 and 20007 are too few"
    with pytest.raises(NoFreePort):
        ports.choose(first[:1], ["c", "d"])
    assert ports.choose(first[:1], ["c"]) == first[1:]
    with pytest.raises(NoFreePort):  # a daemon that began before, anywhere
        ports.choose([20002], ["c"])


def test_leases_that_come_at_once_seldom_want_the_same_port():
    ports = PortRange.parse("20000-29999")
    wanted = {ports.choose([], [f"lease-{number}"])[0] for number in range(100)}
    assert len(wanted) > 95


def test_a_refusal_says_what_to_do_and_names_no_host_as_tenants_read_it():
    refusal = exceptions.NoDaemonPort(host="gpu7", ports=str(PortRange(20000, 20000)))
    assert re.search(r"20000-20000; try again .*lease_ports", str(refusal))
    assert "gpu7" not in str(refusal)
    assert refusal.facts["host"] == "gpu7"


@pytest.mark.parametrize("text", ["", "20000", "20000-", "30000-20000", "80-90", "1-70000", "a-b"])
def test_what_is_no_range_is_refused_with_an_example(text):
    with pytest.raises(ValueError, match="20000-29999"):
        PortRange.parse(text)
