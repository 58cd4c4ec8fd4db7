"""`gsaas-sim`: replay a history on a cloud that is not there, and ask what it should look like."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from gsaas.cli.tables import table

DONE, FAILED = 0, 1

EXAMPLES = """
examples:
  gsaas list -all -status=RELEASED -f json > leases.json
  gsaas-sim import leases leases.json -o history.csv
  gsaas-sim run scenario.toml -o results       then look at results/report.html
  gsaas-sim plan history.csv --gpus=8 --memory-mb=81920 --wait=60 --percent=95
"""


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    from gsaas.exceptions import UnknownPolicy
    from gsaas.sim.history import HistoryError
    from gsaas.sim.plan import Unreachable
    from gsaas.sim.scenario import ScenarioError

    try:
        return args.command(args)
    except (HistoryError, ScenarioError, UnknownPolicy, Unreachable) as error:
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
        return 130
    return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gsaas-sim",
        description="Replay a history of requests on a cloud of GPUs, by GSaaS's own pool, queue and policies.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a scenario and write what came of it")
    run.add_argument("scenario", type=Path, help="a TOML file; gsaas-sim example prints one")
    run.add_argument(
        "-o", "--output", type=Path, help="folder for summary, requests and report.html"
    )
    run.add_argument("--parquet", action="store_true", help="requests as Parquet instead of CSV")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")
    run.set_defaults(command=_run)

    compare = commands.add_parser(
        "compare", help="set the summaries of several results side by side"
    )
    compare.add_argument("results", nargs="+", type=Path, help="folders that gsaas-sim run wrote")
    compare.set_defaults(command=_compare)

    imports = commands.add_parser("import", help="make a history from another format")
    imports.add_argument("kind", choices=("csv", "swf", "openb", "leases"))
    imports.add_argument("file", type=Path)
    imports.add_argument(
        "-o", "--output", type=Path, help="where to; without it, to standard output"
    )
    imports.add_argument(
        "--memory-mb",
        type=int,
        default=81_920,
        help="MiB of a whole GPU, for traces without (81920)",
    )
    imports.set_defaults(command=_import)

    plan = commands.add_parser("plan", help="how many GPUs a history needs, tied and cloudified")
    plan.add_argument("history", type=Path, help="CSV; gsaas-sim import makes one")
    plan.add_argument("--gpus", type=int, required=True, help="GPUs of each host")
    plan.add_argument("--memory-mb", type=int, required=True, help="MiB of each GPU")
    plan.add_argument("--wait", type=float, default=60, help="seconds that a request may wait (60)")
    plan.add_argument(
        "--percent", type=float, default=95, help="of the requests that must not wait longer (95)"
    )
    plan.add_argument(
        "--policy",
        action="append",
        help="may be given again; of several, whichever needs fewest counts",
    )
    plan.add_argument("--host-cost", type=float, default=0, help="of one host without GPUs, bought")
    plan.add_argument("--gpu-cost", type=float, default=0, help="of one GPU, bought")
    plan.add_argument("--years", type=float, default=4, help="over which they are paid (4)")
    plan.add_argument("--kwh-cost", type=float, default=0, help="of a kilowatt-hour")
    plan.add_argument("--json", action="store_true")
    plan.set_defaults(command=_plan)

    example = commands.add_parser("example", help="print a scenario to begin with")
    example.set_defaults(command=_example)
    return parser


def _run(args: argparse.Namespace) -> int:
    from gsaas.sim import history, scenario
    from gsaas.sim.cloud import Simulation
    from gsaas.sim.report import results as report

    wanted = scenario.read(args.scenario)
    demands = history.read(wanted.history)
    results = []
    say = _progress(len(wanted.runs))
    for run in wanted.runs:
        say(run.name)
        simulation = Simulation(
            demands, run.site, policy=run.policy, locality=run.locality, backfill=run.backfill
        )
        results.append((run, simulation.run()))
    say("")
    rows = [report.summary(run, outcome) for run, outcome in results]
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        (args.output / "summary.json").write_text(json.dumps(rows, indent=2) + "\n")
        write = report.write_parquet if args.parquet else report.write_csv
        suffix = "parquet" if args.parquet else "csv"
        write(args.output / f"requests.{suffix}", report.records(results))
        (args.output / "report.html").write_text(report.html(wanted.title, results))
        print(f"gsaas-sim: look at {args.output / 'report.html'}", file=sys.stderr)
    print(json.dumps(rows, indent=2) if args.json else _summary(rows))
    return DONE


def _compare(args: argparse.Namespace) -> int:
    rows = []
    for folder in args.results:
        for row in json.loads((folder / "summary.json").read_text()):
            rows.append({**row, "run": f"{folder.name}: {row['run']}"})
    print(_summary(rows))
    return DONE


def _import(args: argparse.Namespace) -> int:
    from gsaas.sim import history, importers

    demands = importers.read(args.kind, args.file, args.memory_mb)
    if args.output is None:
        history.write(sys.stdout, demands)
        return DONE
    with args.output.open("w") as file:
        history.write(file, demands)
    days = history.span(demands) / 86_400
    print(f"gsaas-sim: {len(demands):,} requests over {days:.1f} days", file=sys.stderr)
    return DONE


def _plan(args: argparse.Namespace) -> int:
    from gsaas.sim import history, plan
    from gsaas.sim.cloud import Site

    answers = plan.plan(
        history.read(args.history),
        Site(1, args.gpus, args.memory_mb),
        plan.ServiceLevel(args.percent, args.wait),
        policies=args.policy or plan.POLICIES,
        costs=plan.Costs(args.host_cost, args.gpu_cost, args.years, kwh=args.kwh_cost),
        progress=_progress(None),
    )
    found = [answer.to_dict() for answer in answers]
    if args.json:
        print(json.dumps(found, indent=2))
        return DONE
    headings = (
        "GPUs",
        "policy",
        "hosts",
        "GPUs in all",
        "memory used, %",
        "mean wait, s",
        "cost a year",
    )
    rows = [
        (
            plan.LOCALITIES[row["locality"]],
            row["policy"],
            row["hosts"],
            row["gpus_in_all"],
            f"{row['utilisation_percent']:.1f}",
            f"{row['mean_wait_seconds']:.1f}",
            f"{row['cost_per_year']:.0f}",
        )
        for row in found
    ]
    print(table(headings, rows))
    tied, anywhere = (row["gpus_in_all"] for row in found)
    if anywhere < tied:
        print(f"\n  Cloudified, {tied - anywhere} GPUs of {tied} are not needed.")
    return DONE


def _example(_args: argparse.Namespace) -> int:
    documented = importlib.import_module("gsaas.sim.scenario").__doc__
    lines = documented.split("\n\n", 1)[1].splitlines()
    print("\n".join(line.removeprefix("    ") for line in lines).strip())
    return DONE


def _summary(rows: Sequence[dict]) -> str:
    headings = (
        "run",
        "policy",
        "locality",
        "GPUs",
        "served",
        "refused",
        "mean wait, s",
        "95 % wait, s",
        "used, %",
    )
    return table(
        headings,
        [
            (
                row["run"],
                row["policy"],
                row["locality"],
                row["gpus"],
                row["served"],
                row["refused"],
                f"{row['mean_wait']:.1f}",
                f"{row['p95_wait']:.1f}",
                f"{row['utilisation_percent']:.1f}",
            )
            for row in rows
        ],
    )


def _progress(total: int | None) -> Callable[[str], None]:
    """Say what is being done: over and over on one line of a terminal, a line each otherwise."""
    live = sys.stderr.isatty()
    done = 0

    def say(what: str) -> None:
        nonlocal done
        if not what:
            if live:
                print("\r\033[K", end="", file=sys.stderr)
            return
        done += 1
        where = f"[{done}/{total}] " if total else ""
        bar = ""
        if total and live:
            filled = round(20 * done / total)
            bar = "#" * filled + "." * (20 - filled) + " "
        print(
            f"\r\033[K{bar}{where}{what}" if live else f"{where}{what}",
            end="" if live else "\n",
            file=sys.stderr,
            flush=True,
        )

    return say


if __name__ == "__main__":
    sys.exit(main())
