# SPDX-License-Identifier: Apache-2.0
"""The tables and the picture in the pages about the studies, from the stored results of the recipes.

The results of each part of the benchmark are a file in `studies/results`; a table is what stands between the comments
`<!-- sim: NAME -->` and `<!-- end -->`. Nothing else writes these tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from studies.frontier import svg

STUDIES = Path(__file__).parent
RESULTS = STUDIES / "results"
PAGES = tuple(STUDIES / folder / "README.md" for folder in (".", "openb", "batch", "hpc", "ngs"))
PICTURE = STUDIES / "openb" / "frontier.svg"
DIGITS = 7
"""Significant digits of stored results: two more than any table shows, so that rounding twice changes none."""
PARTS = (
    "openb",
    "cloudified",
    "remote",
    "rq",
    "mrq",
    "mrq-figures",
    "slurm",
    "dmr",
    "malleable",
    "malleable-mix",
    "ngs",
    "speed",
)
"""The parts of the benchmark, in the order of the document."""

FRONTIER = ("default", "thousandths")
"""The workload, and the unit of shares, that the picture is of."""

TIED_SHOWN = ("FGD", "BestFit")
"""The schedulers that tie tasks to nodes and are in the picture."""

Row = Mapping[str, Any]
Results = Mapping[str, Mapping[str, Any]]
"""Part -> its "rows" and "claims", as the file of the part has them."""

_BLOCK = re.compile(r"(<!-- sim: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read(folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """Return the stored results of every part that has run."""
    files = ((part, folder / f"{part}.json") for part in PARTS)
    return {part: json.loads(file.read_text()) for part, file in files if file.exists()}


def write(part: str, results: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Store the results of one part, rounded, with one row or claim in a line."""
    folder.mkdir(exist_ok=True)
    members = (f'"{name}": {_lines(value)}' for name, value in rounded(results).items())
    (folder / f"{part}.json").write_text("{\n" + ",\n".join(members) + "\n}\n")


def rounded(value: Any) -> Any:
    """Return *value*, what JSON can contain, with `DIGITS` of each number that is no integer."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case Mapping():
            return {name: rounded(one) for name, one in value.items()}
        case list() | tuple():
            return [rounded(one) for one in value]
    return value


def _lines(value: Any) -> str:
    """Return *value* as JSON, a list with each of its items in a line."""
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_json, value)) + "\n]"
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def fill_pages(results: Results) -> None:
    """Write every table, and the picture, as *results* have them."""
    for page in PAGES:
        page.write_text(fill(page.read_text(), results))
    PICTURE.write_text(frontier(results))


def fill(text: str, results: Results) -> str:
    """Return *text* with every table as *results* have it. Raises `KeyError` if results for a table are missing."""
    return _BLOCK.sub(
        lambda block: "\n".join([block[1], TABLES[block["name"]](results), "", block[3]]), text
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; headings that end with `:` are those of columns of numbers."""
    titles = [heading.removesuffix(":") for heading in headings]
    rules = ["---:" if heading.endswith(":") else "---" for heading in headings]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (titles, rules, *rows))


def _fixed(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _seeds(results: Results) -> str:
    """Return how many random orders or job sets each part was run with."""
    return _table(
        ["part", "seeds:"],
        ([part, str(results[part]["seeds"])] for part in PARTS if part != "speed"),
    )


def _cloudified(results: Results, shares: str) -> str:
    rows = [row for row in results["cloudified"]["rows"] if row["shares"] == shares]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    by_name = {(row["placement"], row["workload"]): row for row in rows}
    return _table(
        [
            "placement",
            *(f"{workload}:" for workload in workloads),
            "fragments, %:",
            "idle GPUs:",
            "remote, %:",
            "median node:",
            "largest node:",
        ],
        (
            [
                name,
                *(_fixed(by_name[name, workload]["at_130"], 2) for workload in workloads),
                _fixed(by_name[name, workloads[0]]["fragments"], 1),
                _fixed(by_name[name, workloads[0]]["idle_gpus"], 0),
                _fixed(by_name[name, workloads[0]]["remote_percent"], 0),
                _fixed(by_name[name, workloads[0]]["node_gbit_median"], 1),
                _fixed(by_name[name, workloads[0]]["node_gbit_max"], 1),
            ]
            for name in dict.fromkeys(row["placement"] for row in rows)
        ),
    )


def _remote(results: Results) -> str:
    return _table(
        [
            *("workload", "shares", "daemon", "placement", "price, %:", "allocated, %:"),
            *("remote, %:", "slowdown at 25, 50, 100 Gbit/s:"),
        ],
        (
            [
                row["workload"],
                row["shares"],
                row["daemon"],
                row["placement"],
                "" if row["price"] is None else str(row["price"]),
                f"{row['at_130']:.2f} ± {row['spread']:.2f}",
                _fixed(row["remote_percent"], 0),
                ", ".join(_fixed(slowdown, 2) for slowdown in row["slowdowns"]),
            ]
            for row in results["remote"]["rows"]
        ),
    )


def frontier(results: Results) -> str:
    """Return the picture of the frontier: the default workload, with shares in thousandths."""
    here = [
        [row for row in results[part]["rows"] if (row["workload"], row["shares"]) == FRONTIER]
        for part in ("remote", "cloudified")
    ]
    return svg(here[0], [row for row in here[1] if row["placement"] in TIED_SHOWN])


def _rq(results: Results) -> str:
    return _table(
        [
            *("nodes:", "wait:", "deviation:", "execution:", "deviation:", "lifetime:"),
            *("deviation:", "± of seeds:"),
        ],
        (
            [
                str(row["nodes"]),
                _fixed(row["wait"], 0),
                _fixed(row["wait_deviation"], 0),
                _fixed(row["execution"], 1),
                _fixed(row["execution_deviation"], 1),
                _fixed(row["lifetime"], 0),
                _fixed(row["lifetime_deviation"], 0),
                _fixed(row["lifetime_spread"], 0),
            ]
            for row in results["rq"]["rows"]
        ),
    )


def _mrq(results: Results, part: str) -> str:
    return _table(
        ["experiment", "point", "RQ:", "MRQ:", "jobs worse off, RQ / MRQ, %:"],
        (
            [
                row["experiment"] + (", as printed" if row["printed"] else ""),
                row["label"],
                f"{row['rq_percent']:.1f} ± {row['rq_spread']:.1f}",
                f"{row['mrq_percent']:.1f} ± {row['mrq_spread']:.1f}",
                f"{row['rq_worse']:.0f} / {row['mrq_worse']:.0f}",
            ]
            for row in results[part]["rows"]
        ),
    )


def _slurm(results: Results) -> str:
    return _table(
        ["cluster", "jobs", "mode, policy", "time, s:", "GPU utilisation, %:", "energy, kWh:"],
        (
            [
                row["cluster"],
                row["workload"],
                ", ".join(filter(None, (row["mode"], row["policy"]))),
                f"{row['makespan']:.0f} ± {row['makespan_spread']:.0f}",
                _fixed(row["gpu_utilisation"], 0),
                _fixed(row["energy_kwh"], 1),
            ]
            for row in results["slurm"]["rows"]
        ),
    )


def _dmr(results: Results) -> str:
    return _table(
        [
            *("workload", "jobs:", "kind", "nodes allocated, %:", "wait, s:", "execution, s:"),
            "completion, s:",
        ],
        (
            [
                row["workload"],
                str(row["jobs"]),
                row["mode"],
                _fixed(row["allocated_percent"], 1),
                _fixed(row["wait"], 0),
                _fixed(row["execution"], 0),
                f"{row['completion']:.0f} ± {row['completion_spread']:.0f}",
            ]
            for row in results["dmr"]["rows"]
        ),
    )


def _malleable(results: Results) -> str:
    return _table(
        [
            *("jobs:", "kind", "all done, s:", "wait, s:", "execution, s:", "completion, s:"),
            *("GPUs allocated, %:", "energy, kWh:"),
        ],
        (
            [
                str(row["jobs"]),
                row["kind"],
                _fixed(row["makespan"], 0),
                _fixed(row["wait"], 0),
                _fixed(row["execution"], 0),
                f"{row['completion']:.0f} ± {row['completion_spread']:.0f}",
                _fixed(row["allocated_percent"], 0),
                _fixed(row["energy_kwh"], 0),
            ]
            for row in results["malleable"]["rows"]
        ),
    )


def _malleable_mix(results: Results) -> str:
    return _table(
        ["submission", "malleable", "all done, s:", "GPUs allocated, %:"],
        (
            [
                row["submission"],
                row["part"].replace("%", " %"),
                f"{row['makespan']:.0f} ± {row['makespan_spread']:.0f}",
                _fixed(row["allocated_percent"], 0),
            ]
            for row in results["malleable-mix"]["rows"]
        ),
    )


def _ngs(results: Results) -> str:
    return _table(
        ["GPUs", "jobs done:"],
        (
            [row["placement"], f"{row['done']:.0f} ± {row['spread']:.0f}"]
            for row in results["ngs"]["rows"]
        ),
    )


def _claims(results: Results) -> str:
    return _table(
        ["claim", "published", "measured", "verdict", "reproduced if", "why they differ"],
        (
            [claim[key] for key in ("what", "published", "measured", "verdict", "band", "why")]
            for part in PARTS
            for claim in results[part].get("claims", ())
        ),
    )


def _speed(results: Results) -> str:
    return _table(
        ["run", "nodes:", "events:", "seconds:", "events per second:"],
        (
            [
                row["run"],
                str(row["nodes"]),
                str(row["events"]),
                _fixed(row["seconds"], 1),
                _fixed(row["events_per_second"], 0),
            ]
            for row in results["speed"]["rows"]
        ),
    )


def _reach(results: Results) -> str:
    return _table(
        ["reach", "measured:", "bound"],
        (
            [reach["what"], f"{reach['value']:.3g}", reach["bound"]]
            for part in PARTS
            for reach in results[part].get("reach", ())
        ),
    )


TABLES: Mapping[str, Callable[[Results], str]] = {
    "seeds": _seeds,
    "cloudified-thousandths": lambda results: _cloudified(results, "thousandths"),
    "cloudified-mib": lambda results: _cloudified(results, "MiB"),
    "remote": _remote,
    "rq": _rq,
    "mrq": lambda results: _mrq(results, "mrq"),
    "mrq-figures": lambda results: _mrq(results, "mrq-figures"),
    "slurm": _slurm,
    "dmr": _dmr,
    "malleable": _malleable,
    "malleable-mix": _malleable_mix,
    "ngs": _ngs,
    "claims": _claims,
    "speed": _speed,
    "reach": _reach,
}
"""Name of a table -> what makes it."""
