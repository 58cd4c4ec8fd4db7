# SPDX-License-Identifier: Apache-2.0
"""`gsaas-sim`: replay a history of requests on a simulated cloud, compare results, and plan how many GPUs to buy."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.commands.options import FORMATS
from gsaasclient.cli.exit_statuses import DONE, FAILED, INTERRUPTED, WRONG_USAGE
from gsaasclient.cli.output import print_list, table_of
from gsaasclient.cli.parser import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]


def _rounded(name: str, heading: str, digits: int = 1) -> Column:
    """Return the column of a number, or of None, that tables show with so many decimal places."""
    return Column(
        name, heading, text=lambda row: "-" if row[name] is None else f"{row[name]:.{digits}f}"
    )


def _known(name: str, heading: str | None = None) -> Column:
    """Return a column that tables show as `-` where there is no value."""
    return Column(name, heading, text=lambda row: "-" if row[name] is None else row[name])


RUNS = (
    Column("run"),
    Column("policy"),
    Column("locality"),
    Column("hosts", optional=True),
    Column("gpus", "GPUs"),
    Column("served"),
    Column("refused"),
    _rounded("mean_wait", "mean wait, s"),
    _rounded("p95_wait", "95 % wait, s"),
    Column("longest_wait", "longest wait, s", optional=True),
    _rounded("utilisation_percent", "used, %"),
    Column("spread_percent", "spread, %", optional=True),
)
"""What is printed of each run of a scenario."""
TEXTS = ("run", "policy", "locality")
"""The columns of these that are not numbers."""


def _locality(row: Row) -> str:
    # Imported here, because the simulator needs libraries that gsaas does not.
    from gsaas.sim.plan import LOCALITIES

    return LOCALITIES[row["locality"]]


IMPOSSIBLE = "impossible at any size"
PLANS = (
    Column("locality", "GPUs", text=_locality),
    _known("policy"),
    Column("hosts", text=lambda row: row["hosts"] or IMPOSSIBLE),
    _known("gpus_in_all", "GPUs in all"),
    Column("refused"),
    _rounded("utilisation_percent", "memory used, %"),
    _rounded("mean_wait_seconds", "mean wait, s"),
    _rounded("cost_per_year", "cost a year", 0),
    Column("impossible", optional=True),
)
"""What is printed of each cloud that is planned."""

FLEETS = (
    *PLANS[:2],
    Column(
        "fleet",
        "hosts",
        text=lambda row: (
            " + ".join(
                f"{part['hosts']} {part['name']}" for part in row["fleet"] or () if part["hosts"]
            )
            or IMPOSSIBLE
        ),
    ),
    *PLANS[3:],
)
"""The same of a plan over several kinds of hosts."""
ONE_KIND = ("gpus", "memory_mb", "host_cost", "gpu_cost")
"""The options of a plan with one kind of hosts."""

LIMITS = {
    "gpus": (1, 1000),
    "memory_mb": (1, 1_000_000_000),
    "wait": (0, 1e11),
    "percent": (0.001, 100),
    "refused": (0, 100),
    "host_cost": (0, 1e12),
    "gpu_cost": (0, 1e12),
    "years": (0.01, 1000),
    "kwh_cost": (0, 1e6),
}
"""The smallest and the largest value of each numeric option."""

EXAMPLES = """
examples:
  gsaas list -all -status=RELEASED -f json > leases.json
  gsaas-sim import leases leases.json -o history.csv
  gsaas-sim run scenario.toml -o results       then look at results/report.html
  gsaas-sim plan history.csv --gpus=8 --memory-mb=81920 --wait=60 --percent=95
  gsaas-sim plan history.csv --hosts=hosts.toml --kwh-cost=0.2 -o plan
  gsaas-sim import api -o history.csv          straight from the API, as `gsaas` reaches it
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line, given without the program's name, and return its exit status."""
    args = _parser().parse_args(argv)
    from gsaas.exceptions import UnknownPolicy
    from gsaas.sim.fleet import FleetError
    from gsaas.sim.history import HistoryError
    from gsaas.sim.plan import Unreachable
    from gsaas.sim.policies import NotSimulated
    from gsaas.sim.scenario import ScenarioError
    from gsaasclient import ClientError

    try:
        _check_numbers(args)
        status: int = args.command(args)
        return status
    except UsageError as error:
        print(f"gsaas-sim: {error}", file=sys.stderr)
        return WRONG_USAGE
    except (
        *(ClientError, FleetError, HistoryError, NotSimulated),
        *(ScenarioError, UnknownPolicy, Unreachable),
    ) as error:
        print(f"gsaas-sim: {error}", file=sys.stderr)
    except OSError as error:
        print(f"gsaas-sim: {error.filename or ''}: {error.strerror}", file=sys.stderr)
    except ImportError as error:
        print(
            f"gsaas-sim: {error.name} is not installed; pip install 'gsaas[sim]' brings it",
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        print("gsaas-sim: interrupted", file=sys.stderr)
        return INTERRUPTED
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gsaas-sim",
        description="Replay a history of requests on a cloud of GPUs, by GSaaS's own pool, queue and policies.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a scenario and write its results")
    run.add_argument("scenario", type=Path, help="a TOML file; gsaas-sim example prints one")
    run.add_argument(
        "-o", "--output", type=Path, help="folder to write summary, requests and report.html to"
    )
    run.add_argument("--parquet", action="store_true", help="requests as Parquet instead of CSV")
    _add_output_options(run)
    run.set_defaults(command=_run)

    compare = commands.add_parser(
        "compare", help="print the summaries of several results in one table"
    )
    compare.add_argument("results", nargs="+", type=Path, help="folders that gsaas-sim run wrote")
    _add_output_options(compare)
    compare.set_defaults(command=_compare)

    imports = commands.add_parser("import", help="convert a history from another format")
    imports.add_argument("kind", choices=("csv", "swf", "openb", "leases", "api"))
    imports.add_argument(
        "file", type=Path, nargs="?", help="file to read; none for api: a running GSaaS"
    )
    imports.add_argument("-o", "--output", type=Path, help="file to write (standard output)")
    imports.add_argument(
        "--memory-mb",
        type=int,
        default=81_920,
        help="MiB of a whole GPU, for traces that do not say it (81920)",
    )
    imports.set_defaults(command=_import)

    plan = commands.add_parser(
        "plan", help="calculate how many GPUs a history needs, tied and cloudified"
    )
    plan.add_argument("history", type=Path, help="CSV; gsaas-sim import makes one")
    plan.add_argument("--gpus", type=int, help="number of GPUs of each host")
    plan.add_argument("--memory-mb", type=int, help="MiB of each GPU")
    plan.add_argument(
        "--hosts",
        type=Path,
        help="instead of these: a TOML file with the kinds of hosts that may be bought, and their prices",
    )
    plan.add_argument(
        "-o", "--output", type=Path, help="folder to write summary and report.html to"
    )
    plan.add_argument(
        "--wait", type=float, default=60, help="seconds for which a request may wait (60)"
    )
    plan.add_argument(
        "--percent",
        type=float,
        default=95,
        help="percentage of served requests that must not wait longer (95)",
    )
    plan.add_argument(
        "--refused",
        type=float,
        default=0,
        help="percentage of requests that may be refused because they fit on no number of such hosts (0)",
    )
    plan.add_argument(
        "--policy",
        action="append",
        help="policy to try; repeat it for several, of which the one that needs the fewest GPUs counts",
    )
    plan.add_argument("--host-cost", type=float, help="purchase price of one host without GPUs (0)")
    plan.add_argument("--gpu-cost", type=float, help="purchase price of one GPU (0)")
    plan.add_argument(
        "--years", type=float, default=4, help="years over which hosts and GPUs are paid (4)"
    )
    plan.add_argument("--kwh-cost", type=float, default=0, help="price of a kilowatt-hour")
    _add_output_options(plan)
    plan.set_defaults(command=_plan)

    example = commands.add_parser("example", help="print a scenario to begin with")
    example.set_defaults(command=_example)
    return parser


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f", "--format", dest="f", choices=FORMATS, default="table", help="output format (table)"
    )
    parser.add_argument(
        *("-c", "--column"),
        dest="c",
        action="append",
        default=[],
        metavar="COLUMN",
        help="print this column only; repeat it for several, in the order wanted",
    )
    parser.add_argument(
        "--json", dest="f", action="store_const", const="json", help="the same as -f json"
    )


def _run(args: argparse.Namespace) -> int:
    columns = select(RUNS, args.c)
    from gsaas.sim import history, policy_options, scenario
    from gsaas.sim.cloud import Simulation
    from gsaas.sim.report import results as report

    wanted = scenario.read(args.scenario)
    demands = history.read(wanted.history)
    results = []
    say = _Progress(len(wanted.runs))
    for run in wanted.runs:
        say(run.name)
        simulation = Simulation(
            demands,
            run.site,
            policy=policy_options.load(run.policy, run.options),
            locality=run.locality,
            backfill=run.backfill,
            progress=say.percent,
        )
        results.append((run, simulation.run()))
    say.done()
    rows = [report.summary(run, outcome) for run, outcome in results]
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "summary.json").write_text(json.dumps(rows, indent=2) + "\n")
        write = report.write_parquet if args.parquet else report.write_csv
        suffix = "parquet" if args.parquet else "csv"
        write(args.output / f"requests.{suffix}", report.records(results))
        (args.output / "report.html").write_text(report.html(wanted.title, results))
        print(f"gsaas-sim: look at {args.output / 'report.html'}", file=sys.stderr)
    print_list(args, columns, rows, rows)
    return DONE


def _compare(args: argparse.Namespace) -> int:
    columns = select(RUNS, args.c)
    rows = []
    for folder in args.results:
        for row in _summary(folder / "summary.json"):
            rows.append({**row, "run": f"{folder.name}: {row['run']}"})
    print_list(args, columns, rows, rows)
    return DONE


def _summary(path: Path) -> list[Row]:
    """Return the rows of a summary that `gsaas-sim run` wrote. Raises `HistoryError`."""
    from gsaas.sim.history import HistoryError

    try:
        rows = json.loads(path.read_text("utf-8-sig"))
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise HistoryError(f"{where}: {error.msg}; gsaas-sim run writes a new one") from None
    except UnicodeDecodeError as error:
        raise HistoryError(f"{path} cannot be read: {error}") from None
    names = [column.name for column in RUNS]
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and row.keys() >= set(names) for row in rows
    ):
        raise HistoryError(f"{path} is not a list of runs with {', '.join(names)}")
    for number, row in enumerate(rows, 1):
        for name in names:
            is_number = isinstance(row[name], int | float) and -1e15 < row[name] < 1e15
            if not (isinstance(row[name], str) if name in TEXTS else is_number):
                kind = "text" if name in TEXTS else "number"
                raise HistoryError(f"{path}, run {number}, {name}: {row[name]!r} is not a {kind}")
    return rows


def _check_numbers(args: argparse.Namespace) -> None:
    """Raise `UsageError` for a number that no plan or import can have."""
    for name, (least, most) in LIMITS.items():
        value = getattr(args, name, None)
        if value is not None and not least <= value <= most:
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is a number from {least:g} to {most:g}, not {value:g}")


def _import(args: argparse.Namespace) -> int:
    from gsaas.sim import history, importers

    if (args.kind == "api") != (args.file is None):
        raise UsageError(
            "import api reads no file" if args.file else f"import {args.kind} needs a file"
        )
    if args.file is None:
        imported = importers.from_leases(_leases_of_api(), "the API")
    else:
        imported = importers.read(args.kind, args.file, args.memory_mb)
    demands = imported.demands
    if missing := imported.what_is_missing():
        print(f"gsaas-sim: {missing}", file=sys.stderr)
    if args.output is None:
        history.write(sys.stdout, demands)
        return DONE
    with args.output.open("w") as file:
        history.write(file, demands)
    days = history.span(demands) / 86_400
    print(f"gsaas-sim: {len(demands):,} requests over {days:.1f} days", file=sys.stderr)
    return DONE


def _leases_of_api() -> list[Row]:
    """Return the leases that have ended, of all projects if the caller may see them, as the API lists them."""
    import os

    from gsaasclient import ApiError, Client, find_credentials
    from gsaasclient.cli.paging import get_all
    from gsaasclient.cli.readings import with_readings

    client = Client(find_credentials(os.environ))

    def ended(query: str) -> Row:
        path = f"/v1/leases?status=RELEASED{query}"
        # The newest microversion, as leases of older ones do not say of which kind their devices were.
        return with_readings(lambda version: get_all(client, path, "leases", version))

    try:
        found = ended("&all_projects=true")
    except ApiError as error:
        if error.status != 403:
            raise
        print("gsaas-sim: leases of other projects may not be seen", file=sys.stderr)
        found = ended("")
    leases: list[Row] = found["leases"]
    return leases


def _plan(args: argparse.Namespace) -> int:
    if args.hosts is None and (args.gpus is None or args.memory_mb is None):
        raise UsageError("plan needs --gpus and --memory-mb, or --hosts")
    if args.hosts is not None and any(getattr(args, name) is not None for name in ONE_KIND):
        options = ", ".join("--" + name.replace("_", "-") for name in ONE_KIND)
        raise UsageError(f"--hosts cannot be combined with any of {options}")
    columns = select(PLANS if args.hosts is None else FLEETS, args.c)
    from gsaas.sim import fleet, history, plan
    from gsaas.sim.cloud import Site
    from gsaas.sim.report import plans as report

    say = _Progress(None)
    level = plan.ServiceLevel(args.percent, args.wait, args.refused)
    policies = args.policy or plan.POLICIES
    answers: Sequence[plan.SmallestSite | fleet.CheapestFleet | plan.Impossible]
    if args.hosts is None:
        answers = plan.plan(
            history.read(args.history),
            Site(1, args.gpus, args.memory_mb),
            level,
            policies=policies,
            costs=plan.Costs(
                args.host_cost or 0, args.gpu_cost or 0, args.years, kwh=args.kwh_cost
            ),
            progress=say,
            percent=say.percent,
        )
    else:
        answers = fleet.plan(
            history.read(args.history),
            fleet.read(args.hosts),
            level,
            policy_names=policies,
            years=args.years,
            kwh=args.kwh_cost,
            progress=say,
            percent=say.percent,
        )
    say.done()
    found = [answer.to_dict() for answer in answers]
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "summary.json").write_text(json.dumps(found, indent=2) + "\n")
        title = f"A plan for {args.history.name}"
        (args.output / "report.html").write_text(report.html(title, answers))
        print(f"gsaas-sim: look at {args.output / 'report.html'}", file=sys.stderr)
    print_list(args, columns, found, found, lambda: _describe_plan(columns, found))
    return DONE


def _describe_plan(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    lines = [table_of(columns, rows)]
    for row in rows:
        if row["impossible"]:
            lines.append(f"{_locality(row).capitalize()}, it is {IMPOSSIBLE}: {row['impossible']}.")
    tied, anywhere = rows
    if tied["impossible"] or anywhere["impossible"]:
        return "\n\n  ".join(lines)
    if anywhere["refused"] < tied["refused"]:
        more = tied["refused"] - anywhere["refused"]
        lines.append(
            f"Cloudified, {more} more requests are served: the two do not do the same work."
        )
    if anywhere["gpus_in_all"] < tied["gpus_in_all"]:
        fewer = tied["gpus_in_all"] - anywhere["gpus_in_all"]
        lines.append(f"Cloudified, {fewer} GPUs of {tied['gpus_in_all']} are not needed.")
    if anywhere["cost_per_year"] < tied["cost_per_year"]:
        saved = 100 * (1 - anywhere["cost_per_year"] / tied["cost_per_year"])
        lines.append(f"Cloudified, the year costs {saved:.0f} % less.")
    return "\n\n  ".join(lines)


def _example(_args: argparse.Namespace) -> int:
    documented = importlib.import_module("gsaas.sim.scenario").__doc__ or ""
    lines = documented.split("\n\n", 1)[1].splitlines()
    print("\n".join(line.removeprefix("    ") for line in lines).strip())
    return DONE


class _Progress:
    """Prints what is being done: on a terminal one line, rewritten; elsewhere a line for each run, more for long ones.

    *total* is the number of runs, if it is known.
    """

    EVERY = 10.0
    """Seconds after which there is another line about a run, where lines are not rewritten."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._run = 0
        self._what = ""
        self._live = sys.stderr.isatty()
        self._printed_at = 0.0

    def __call__(self, what: str) -> None:
        """Print which run begins."""
        self._run += 1
        self._what = f"[{self._run}/{self._total}] {what}" if self._total else what
        self._print(0)

    def percent(self, percent: int) -> None:
        """Print how much of the run is done."""
        if self._live or time.monotonic() - self._printed_at >= self.EVERY:
            self._print(percent)

    def done(self) -> None:
        """End the line of progress."""
        if self._live:
            print("\r\033[K", end="", file=sys.stderr)

    def _print(self, percent: int) -> None:
        self._printed_at = time.monotonic()
        if not self._live:
            text = f"{self._what}: {percent} %" if percent else self._what
            print(text, file=sys.stderr, flush=True)
            return
        filled = percent // 5
        bar = "#" * filled + "." * (20 - filled)
        print(f"\r\033[K{bar} {self._what}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
