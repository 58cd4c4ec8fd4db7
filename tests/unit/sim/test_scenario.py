# SPDX-License-Identifier: Apache-2.0
"""Scenarios, the program that runs them, and the report it writes."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gsaas.cli import sim as program
from gsaas.conf import gpgpums
from gsaas.sim import policy_options, scenario
from gsaas.sim.cloud import Simulation, Site
from gsaas.sim.history import Demand
from gsaas.sim.report import svg
from gsaas.sim.scenario import ScenarioError

SITE = "[site]\nhosts = 2\ngpus = 2\nmemory_mb = 1000\n"
HISTORY = """arrival,duration,count,mode,memory_mb,project
0,600,1,exclusive,,a
0,60,1,exclusive,,a
0,600,1,exclusive,,b
120,300,2,exclusive,,b
"""
TOO_LARGE = "arrival,duration,count,mode,memory_mb\n0,600,1,shared,10\n"
SCENARIO = f"""title = "Scattered <GPUs>"
history = "history.csv"
{SITE}
[[run]]
name = "tied"
policy = "first-fit"
locality = "local"

[[run]]
name = "anywhere"
policy = "first-fit"
"""
SUMMARY = """{"run": "a", "policy": "best-fit", "locality": "any", "hosts": 1, "gpus": 1, "served": 1,
"refused": 0, "mean_wait": 0.0, "p95_wait": 0, "longest_wait": 0, "utilisation_percent": 1, "spread_percent": 0"""
"""The beginning of a run in a summary: of what is in it twice the last counts."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "history.csv").write_text(HISTORY)
    (tmp_path / "too_large.csv").write_text(TOO_LARGE)
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    return tmp_path


def test_the_documented_example_is_a_scenario(tmp_path: Path, capsys):
    program.main(["example"])
    path = tmp_path / "example.toml"
    path.write_text(capsys.readouterr().out.replace("best-fit", "first-fit"))
    read = scenario.read(path)
    assert [run.name for run in read.runs] == ["tied", "anywhere", "fewer hosts"]
    assert [run.site.hosts for run in read.runs] == [16, 16, 14]
    assert read.history == tmp_path / "history.csv"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (SITE, "needs history"),
        ('history = "h"', r"\[site\] needs hosts, gpus, memory_mb"),
        (f'history = "h"\n{SITE}colour = "red"', "has no 'colour'; it may have"),
        ('history = "h"\n[site]\nhosts = 0\ngpus = 1\nmemory_mb = 1', "hosts is at least 1"),
        (
            'history = "h"\n[site]\nhosts = true\ngpus = 1\nmemory_mb = 1',
            "hosts is not of type int",
        ),
        (
            f'history = "h"\n{SITE}[[run]]\npolicy = "best"',
            "no policy 'best'; use one of .*first-fit",
        ),
        (
            f'history = "h"\n{SITE}[[run]]\npolicy = "best-fit-utilisation"',
            "run.* 1: best-fit-utilisation looks at the utilisation .* there are best-fit, energy",
        ),
        (
            f'history = "h"\n{SITE}[[run]]\noptions = {{ price = 3 }}',
            "run.* 1: there is no option 'price'; there are fewer_jobs_node_inside, remote_price",
        ),
        (
            f'history = "h"\n{SITE}[[run]]\npolicy = "local-gradient"\noptions = {{ remote_price = -1 }}',
            "run.* 1: remote_price is a number from 0 to 10000, not -1",
        ),
        (
            f'history = "h"\n{SITE}[[run]]\npolicy = "fewer-jobs-node"\n'
            'options = { fewer_jobs_node_inside = "none" }',
            "run.* 1: .*fewer_jobs_node_inside is 'none', but may be one of best-fit",
        ),
        (f'history = "h"\n{SITE}[[run]]\nlocality = "near"', "locality is any or local"),
        (f'history = "h"\n{SITE}[[run]]\nname="a"\n[[run]]\nname="a"', "the same name"),
        ("= 1", "is not valid TOML"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said(tmp_path: Path, text: str, reason: str):
    path = tmp_path / "scenario.toml"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=reason):
        scenario.read(path)


def test_a_run_leaves_a_summary_the_requests_and_a_report(folder: Path, capsys):
    out = folder / "out"
    assert program.main(["run", str(folder / "scenario.toml"), "-o", str(out), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows == json.loads((out / "summary.json").read_text())
    assert [(row["run"], row["longest_wait"]) for row in rows] == [("tied", 480), ("anywhere", 0)]
    with (out / "requests.csv").open() as file:
        requests = list(csv.DictReader(file))
    assert [row["start"] for row in requests] == [
        "0.0",
        "0.0",
        "0.0",
        "600.0",
        "0.0",
        "0.0",
        "0.0",
        "120.0",
    ]


def test_parquet_holds_the_same(folder: Path):
    parquet = pytest.importorskip("pyarrow.parquet")
    out = folder / "out"
    assert program.main(["run", str(folder / "scenario.toml"), "-o", str(out), "--parquet"]) == 0
    assert parquet.read_table(out / "requests.parquet").column("wait").to_pylist()[3] == 480


class Page(HTMLParser):
    """What a page refers to, and whether all that it opens is closed."""

    VOID = frozenset({"meta", "br", "i"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_report_needs_nothing_else_and_escapes_what_others_wrote(folder: Path):
    out = folder / "out"
    program.main(["run", str(folder / "scenario.toml"), "-o", str(out)])
    text = (out / "report.html").read_text()
    page = Page(text)
    assert page.open == []
    assert page.references == []
    assert "script" not in page.tags
    assert page.tags.count("svg") == 7
    assert "Scattered &lt;GPUs&gt;" in text


def test_results_are_set_side_by_side(folder: Path, capsys):
    out = folder / "out"
    program.main(["run", str(folder / "scenario.toml"), "-o", str(out)])
    capsys.readouterr()
    assert program.main(["compare", str(out)]) == 0
    assert "out: anywhere" in capsys.readouterr().out


def test_results_are_printed_in_the_formats_and_columns_of_gsaas(folder: Path, capsys):
    run = ["run", str(folder / "scenario.toml")]
    assert program.main([*run, "-f", "value", "-c", "longest_wait", "-c", "run"]) == 0
    assert capsys.readouterr().out == "480.0 tied\n0.0 anywhere\n"
    assert program.main([*run, "-f", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["run"], row["gpus"]) for row in rows] == [("tied", "4"), ("anywhere", "4")]
    assert program.main([*run, "-c", "nope"]) == 2
    assert "there is no column nope; the columns are run, policy" in capsys.readouterr().err


def test_a_plan_for_a_history(folder: Path, capsys):
    arguments = ["--gpus=2", "--memory-mb=1000", "--wait=0", "--percent=100", "--policy=first-fit"]
    assert program.main(["plan", str(folder / "history.csv"), *arguments, "--json"]) == 0
    tied, anywhere = json.loads(capsys.readouterr().out)
    assert (tied["locality"], tied["gpus_in_all"]) == ("local", 6)
    assert (anywhere["locality"], anywhere["gpus_in_all"]) == ("any", 4)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "{folder}/missing.toml"], "cannot be read"),
        (["import", "swf", "{folder}/history.csv"], "is not in the format swf"),
        (
            ["plan", "{folder}/history.csv", "--gpus=4", "--memory-mb=9", "--policy=best"],
            "no policy",
        ),
        (
            [
                *("plan", "{folder}/history.csv", "--gpus=4", "--memory-mb=9"),
                "--policy=best-fit-utilisation",
            ],
            "cannot be simulated",
        ),
        (
            ["plan", "{folder}/too_large.csv", "--gpus=1", "--memory-mb=9"],
            "fit on no number of such hosts",
        ),
        (["compare", "{folder}/missing"], "No such file"),
    ],
)
def test_what_goes_wrong_is_one_sentence(folder: Path, capsys, arguments, reason):
    assert program.main([argument.format(folder=folder) for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "option",
    [
        *("--years=0", "--years=nan", "--wait=-1", "--wait=inf", "--percent=-3", "--percent=101"),
        *("--gpus=0", "--memory-mb=-5", "--gpu-cost=1e300", "--kwh-cost=-1"),
    ],
)
def test_a_number_that_no_plan_can_have_is_one_sentence(folder: Path, capsys, option: str):
    arguments = ["plan", str(folder / "history.csv"), "--gpus=4", "--memory-mb=1000", option]
    assert program.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"gsaas-sim: {option.partition('=')[0]} is a number from ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[\n{"run": 1,\n', "summary.json, line 3, column 1: Expecting"),
        ("{}", "summary.json is not a list of runs with run, policy"),
        ('[{"run": "a"}]', "summary.json is not a list of runs with run, policy"),
        ("\x80", "summary.json cannot be read"),
        ('[BEGIN, "mean_wait": "x"}]', "summary.json, run 1, mean_wait: 'x' is not a number"),
        ('[BEGIN, "p95_wait": NaN}]', "summary.json, run 1, p95_wait: nan is not a number"),
        ('[BEGIN, "run": 3}]', "summary.json, run 1, run: 3 is not a text"),
    ],
)
def test_a_broken_summary_is_named(folder: Path, capsys, text: str, reason: str):
    (folder / "out").mkdir()
    text = text.replace("BEGIN", SUMMARY)
    (folder / "out" / "summary.json").write_bytes(text.encode("latin-1"))
    assert program.main(["compare", str(folder / "out")]) == 1
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_a_scenario_may_begin_with_a_byte_order_mark(folder: Path):
    path = folder / "scenario.toml"
    path.write_text(path.read_text(), encoding="utf-8-sig")
    assert len(scenario.read(path).runs) == 2


def test_progress_is_shown_within_a_run():
    seen = []
    demands = [Demand(n, n, 1, 1, "exclusive", None) for n in range(1000)]
    Simulation(demands, Site(1, 1, 1000), progress=seen.append).run()
    assert seen == list(range(1, 101))


def test_charts_are_well_formed_and_stay_on_the_paper():
    chart = svg.lines("a & b", [("one", [(0, 0), (5, 10)]), ("two", [])], x="x", y="y", time=True)
    figure = ElementTree.fromstring(chart)  # noqa: S314 - our own
    width, height = map(float, figure.find("svg").get("viewBox").split()[2:])
    for line in figure.iter("line"):
        assert 0 <= float(line.get("x1")) <= float(line.get("x2")) <= width
        assert 0 <= float(line.get("y1")) <= height
    assert figure.find("figcaption").text == "a & b"


def figures(page: Path) -> list[ElementTree.Element]:
    found = re.findall(r"<figure>.*?</figure>", page.read_text(), re.DOTALL)
    return [ElementTree.fromstring(figure) for figure in found]  # noqa: S314 - our own


def test_a_run_has_one_colour_in_all_charts_of_a_report(folder: Path):
    assert program.main(["run", str(folder / "scenario.toml"), "-o", str(folder / "out")]) == 0
    keys = [
        (key.find("i").tail, key.find("i").get("class"))
        for figure in figures(folder / "out" / "report.html")
        for key in figure.iter("span")
    ]
    assert len(keys) > len(set(keys)) == len({name for name, _ in keys}) == 2
    for name, colour in set(keys):
        (chart,) = [
            figure
            for figure in figures(folder / "out" / "report.html")
            if figure.find("figcaption").text == f"GPU occupancy: {name}"
        ]
        blocks = [rect.get("class").split() for rect in chart.iter("rect")]
        assert {each[1] for each in blocks} == {colour}
        assert len({each[2] for each in blocks}) > 1


def test_the_occupancies_of_all_runs_have_the_same_axis_of_time(folder: Path):
    assert program.main(["run", str(folder / "scenario.toml"), "-o", str(folder / "out")]) == 0
    ticks = [
        [
            (text.get("x"), text.text)
            for text in figure.iter("text")
            if text.get("class") == "tick middle"
        ]
        for figure in figures(folder / "out" / "report.html")
        if figure.find("figcaption").text.startswith("GPU occupancy")
    ]
    assert len(ticks) == 2
    assert ticks[0] == ticks[1]


def test_thinning_keeps_ends_and_extremes():
    points = [(float(x), float(x % 7)) for x in range(50_000)]
    points[31_000] = (31_000.0, 99.0)
    kept = svg.thinned(points)
    assert len(kept) < 1500
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert (31_000.0, 99.0) in kept


def test_options_of_policies_have_the_defaults_of_the_service():
    options = {option.name: option.default for option in gpgpums.OPTS}
    assert policy_options.DEFAULTS.items() <= options.items()


def test_options_of_a_policy_change_its_choices():
    """The fullest GPU is remote; with a price the local one is taken."""
    demands = [
        Demand(0, 0, 60, 1, "shared", 700, host="b"),
        Demand(1, 1, 60, 1, "shared", 300, consumer_host="a"),
    ]
    hosts = {}
    for price in (0, 100):
        policy = policy_options.load("local-gradient", {"remote_price": price})
        outcome = Simulation(demands, Site(2, 1, 1000), policy=policy).run()
        hosts[price] = next(uuid for _, uuid, request, _ in outcome.occupancy if request == 1)
    assert hosts == {0: "host0001-0", 100: "host0000-0"}


def test_the_name_of_a_run_is_no_formula_of_a_spreadsheet(folder: Path):
    path, out = folder / "scenario.toml", folder / "out"
    path.write_text(path.read_text().replace('"tied"', '"=1+1"'))
    assert program.main(["run", str(path), "-o", str(out)]) == 0
    with (out / "requests.csv").open() as file:
        assert {row["run"] for row in csv.DictReader(file)} == {"'=1+1", "anywhere"}
