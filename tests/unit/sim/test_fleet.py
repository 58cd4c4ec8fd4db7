# SPDX-License-Identifier: Apache-2.0
"""The cheapest mix of hosts that serves a history."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.cli import sim as program
from gsaas.sim import fleet
from gsaas.sim.fleet import FleetError, HostKind
from gsaas.sim.history import Demand
from gsaas.sim.plan import ServiceLevel, Unreachable

BIG = HostKind("big", 4, 1000, 100.0, model="H200")
SMALL = HostKind("small", 1, 1000, 20.0, model="L4")
NEVER_WAIT = ServiceLevel(100, 0)
KINDS = """
[[host]]
name = "big"
gpus = 4
memory_mb = 1000
model = "H200"
price = 100

[[host]]
name = "small"
gpus = 1
memory_mb = 1000
model = "L4"
price = 20
"""


def at_once(count: int, cgpus: int = 1, model: str = "") -> list[Demand]:
    return [Demand(n, 0, 60, cgpus, "exclusive", None, model=model) for n in range(count)]


def counts(found: fleet.CheapestFleet) -> dict[str, int]:
    return {kind.name: number for kind, number in found.hosts}


@given(
    prices=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    work=st.integers(0, 12),
    data=st.data(),
)
def test_no_cheaper_mix_is_enough(prices: list[int], work: int, data: st.DataObject):
    """Against a look at every mix."""
    kinds = len(prices)
    power = data.draw(st.lists(st.integers(0, 4), min_size=kinds, max_size=kinds))
    most = tuple(data.draw(st.lists(st.integers(1, 5), min_size=kinds, max_size=kinds)))

    def is_enough(numbers: fleet.Counts) -> bool:
        return sum(a * b for a, b in zip(power, numbers, strict=True)) >= work

    def cost(numbers: fleet.Counts) -> int:
        return sum(a * b for a, b in zip(prices, numbers, strict=True))

    mixes = itertools.product(*(range(bound + 1) for bound in most))
    enough = [cost(mix) for mix in mixes if is_enough(mix)]
    found = fleet.cheapest(prices, most, is_enough)
    assert (None if found is None else cost(found)) == min(enough, default=None)
    if enough:
        assert fleet.cheapest(prices, most, is_enough, below=min(enough)) is None


def test_a_mix_is_cheaper_than_either_kind():
    """Five GPUs at once: a big host and a small one cost less than two big or five small ones."""
    dearer = HostKind("small", 1, 1000, 30.0)
    for found in fleet.plan(at_once(5), [BIG, dearer], NEVER_WAIT, policy_names=["first-fit"]):
        assert counts(found) == {"big": 1, "small": 1}
        assert found.cost_per_year == 130 / 4


def test_tied_to_their_host_wide_requests_need_large_hosts():
    """A request for two GPUs fits on no host with one; cloudified, it takes one of each of two."""
    tied, anywhere = fleet.plan(at_once(1, 2), [BIG, SMALL], NEVER_WAIT, policy_names=["first-fit"])
    assert counts(tied) == {"big": 1, "small": 0}
    assert counts(anywhere) == {"big": 0, "small": 2}


def test_requests_for_a_model_get_hosts_with_that_model():
    demands = [*at_once(1, 1, "H200"), *at_once(2, 1, "L4")]
    demands = [
        Demand(n, 0, 60, 1, "exclusive", None, model=one.model) for n, one in enumerate(demands)
    ]
    tied, _ = fleet.plan(demands, [BIG, SMALL], NEVER_WAIT, policy_names=["first-fit"])
    assert counts(tied) == {"big": 1, "small": 2}


def test_power_is_part_of_the_cost():
    hungry = HostKind("hungry", 1, 1000, 10.0, kw=1.0)
    frugal = HostKind("frugal", 1, 1000, 20.0, kw=0.1)
    (found, _) = fleet.plan(at_once(1), [hungry, frugal], NEVER_WAIT, kwh=0.1)
    assert counts(found) == {"hungry": 0, "frugal": 1}
    assert found.cost_per_year == pytest.approx(20 / 4 + 0.1 * 8760 * 0.1)


def test_a_fleet_that_cannot_be_bought_is_said():
    few = HostKind("few", 1, 1000, 1.0, most=2)
    with pytest.raises(Unreachable, match="the hosts that may be bought are too few"):
        fleet.plan(at_once(3), [few], NEVER_WAIT, policy_names=["first-fit"])


def test_small_hosts_serve_wide_requests_only_cloudified():
    tied, anywhere = fleet.plan(at_once(2, 3), [SMALL], NEVER_WAIT, policy_names=["first-fit"])
    assert (tied.refused, tied.to_dict()["fleet"]) == (2, None)
    assert counts(anywhere) == {"small": 6}


def test_the_program_says_what_is_impossible_in_table_json_and_report(folder: Path, capsys):
    (folder / "history.csv").write_text("arrival,duration,count,mode\n0,60,6,exclusive\n")
    arguments = ["plan", str(folder / "history.csv"), f"--hosts={folder / 'hosts.toml'}"]
    assert program.main([*arguments, "-o", str(folder / "out")]) == 0
    printed = capsys.readouterr().out
    assert "impossible at any size" in printed
    assert "Tied to their host, it is impossible at any size: 1 of 1 requests fit on no" in printed
    assert "impossible at any size" in (folder / "out" / "report.html").read_text()
    tied, anywhere = json.loads((folder / "out" / "summary.json").read_text())
    assert (tied["hosts"], tied["refused"], anywhere["refused"]) == (None, 1, 0)


def test_the_documented_hosts_are_a_fleet(tmp_path: Path):
    page = (Path(__file__).parents[3] / "doc" / "simulator.md").read_text()
    text = page.split("<!-- hosts -->")[1].split("```toml\n")[1].split("```")[0]
    (tmp_path / "hosts.toml").write_text(text)
    h200, l4 = fleet.read(tmp_path / "hosts.toml")
    assert (h200.name, h200.gpus, h200.most, l4.price) == ("h200", 8, 12, 24_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hosts.toml").write_text(KINDS)
    lines = ["arrival,duration,count,mode", *["0,60,1,exclusive"] * 5]
    (tmp_path / "history.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_the_program_plans_a_fleet_and_draws_it(folder: Path, capsys):
    arguments = ["plan", str(folder / "history.csv"), f"--hosts={folder / 'hosts.toml'}"]
    assert program.main([*arguments, "--wait=0", "--json", "-o", str(folder / "out")]) == 0
    tied, anywhere = json.loads(capsys.readouterr().out)
    assert tied["cost_per_year"] == anywhere["cost_per_year"] == 25
    assert (folder / "out" / "report.html").read_text().count("<svg") >= 4
    assert json.loads((folder / "out" / "summary.json").read_text())


def test_a_plan_of_one_kind_of_hosts_is_drawn_too(folder: Path, capsys):
    arguments = ["plan", str(folder / "history.csv"), "--gpus=4", "--memory-mb=1000", "--wait=0"]
    assert program.main([*arguments, "-o", str(folder / "out")]) == 0
    assert (folder / "out" / "report.html").read_text().count("<svg") >= 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has to have [[host]] tables and nothing else"),
        ("host = 3", "has to have [[host]] tables and nothing else"),
        ('[[host]]\nname = "a"', "[[host]] 1 needs gpus, memory_mb, price"),
        (KINDS.replace("small", "big"), "two kinds of hosts have the same name"),
        (KINDS.replace("price = 20", "price = 0"), "[[host]] 2: price is a number from 0.01 to"),
        (KINDS.replace("price = 20", "price = nan"), "price is a number from 0.01 to"),
        (KINDS.replace("gpus = 4", "gpus = true"), "[[host]] 1: gpus is not of type int: True"),
        (KINDS + "colour = 1", "[[host]] 2 has no 'colour'; it may have name, gpus"),
        ("= 1", "is not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_file_of_hosts_is_one_sentence(folder: Path, capsys, text, reason):
    (folder / "hosts.toml").write_text(text)
    with pytest.raises(FleetError):
        fleet.read(folder / "hosts.toml")
    arguments = ["plan", str(folder / "history.csv"), f"--hosts={folder / 'hosts.toml'}"]
    assert program.main(arguments) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "needs --gpus and --memory-mb, or --hosts"),
        (["--gpus=4"], "needs --gpus and --memory-mb, or --hosts"),
        (["--hosts=hosts.toml", "--gpus=4"], "--hosts cannot be combined with any of --gpus"),
        (["--hosts=hosts.toml", "--gpu-cost=4"], "--hosts cannot be combined with any of --gpus"),
    ],
)
def test_a_plan_is_of_one_kind_of_hosts_or_of_several(folder: Path, capsys, options, reason):
    assert program.main(["plan", str(folder / "history.csv"), *options]) == 2
    assert reason in capsys.readouterr().err
