# SPDX-License-Identifier: Apache-2.0
"""`python -m studies`: run one of the studies, with files and parameters of your own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gsaasclient.cli.exit_statuses import DONE, FAILED
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.tables import table
from studies.batch import tsubame
from studies.hpc import malleable
from studies.openb import local, trace
from studies.openb.schedulers import SCHEDULERS
from studies.openb.trace import TraceError
from studies.recipes import malleable_2018, mrq_2016, openb_local, rq_2014, slurm_2018

Rows = list[dict[str, Any]]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0 when it ran, 1 for a file that cannot be read."""
    args = _parser().parse_args(argv)
    try:
        rows: Rows = args.study(args)
    except (TraceError, UsageError, ValueError) as error:
        print(f"studies: {error}", file=sys.stderr)
        return FAILED
    if args.json:
        print(json.dumps({"rows": rows}, indent=2))
    else:
        print(table(list(rows[0]), [[_text(value) for value in row.values()] for row in rows]))
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m studies", description=__doc__)
    studies = parser.add_subparsers(required=True, metavar="STUDY")

    openb = _study(
        studies, "openb", _openb, "how much GPUs the published schedulers allocate (ATC 2023)"
    )
    openb.add_argument("--nodes", type=Path, required=True, help="CSV of nodes, as in the trace")
    openb.add_argument("--pods", type=Path, required=True, help="CSV of tasks, as in the trace")
    openb.add_argument(
        "--load",
        type=_positive(float),
        default=local.LOAD,
        help=f"how many times the capacity of the GPUs arrivals ask for ({local.LOAD})",
    )
    names = [scheduler.name for scheduler in SCHEDULERS]
    openb.add_argument("--schedulers", nargs="+", choices=names, default=names, metavar="NAME")

    rq = _study(studies, "rq", _rq, "RQ against the G queue (PDCAT 2014)")
    rq.add_argument("--jobs", type=_positive(int), default=tsubame.JOBS, help="number of jobs")
    rq.add_argument("--nodes", type=_positive(int), nargs="+", default=rq_2014.NODES)

    mrq = _study(studies, "mrq", _mrq, "RQ and MRQ against FCFS (2016)")
    mrq.add_argument("--jobs", type=_positive(int), default=mrq_2016.JOBS, help="number of jobs")
    experiments = list(dict.fromkeys(one.experiment for one in mrq_2016.settings(1)))
    mrq.add_argument(
        "--experiments", nargs="+", choices=experiments, default=experiments, metavar="NAME"
    )

    _study(studies, "slurm", _slurm, "remote GPUs under Slurm (thesis, chapter 4)")

    dmr = _study(studies, "dmr", _dmr, "malleable jobs (thesis, chapter 7)")
    dmr.add_argument(
        "--jobs",
        type=_positive(int),
        nargs="+",
        default=malleable_2018.SIZES,
        help="numbers of jobs",
    )
    dmr.add_argument("--gpus", type=_positive(int), default=malleable_2018.GPUS)
    return parser


def _study(
    studies: Any, name: str, run: Callable[[argparse.Namespace], Rows], summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = studies.add_parser(name, help=summary, description=summary)
    parser.add_argument(
        "--seeds", type=_positive(int), default=10, help="number of random orders or job sets (10)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(study=run)
    return parser


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e9:
            raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1e9")
        return value

    number.__name__ = kind.__name__  # argparse names it in its message
    return number


def _openb(args: argparse.Namespace) -> Rows:
    first = openb_local.SEEDS[0]
    rows = openb_local.rows(
        trace.read_nodes(args.nodes),
        trace.read_tasks(args.pods),
        [scheduler for scheduler in SCHEDULERS if scheduler.name in args.schedulers],
        range(first, first + args.seeds),
        args.load,
        _report_progress,
    )
    return [row.to_dict() for row in rows]


def _rq(args: argparse.Namespace) -> Rows:
    most = max(args.nodes)
    found = [
        rq_2014.summarise(
            rq_2014.run(tsubame.jobs(seed, args.jobs, most), args.nodes, _report_progress)
        )
        for seed in _seeds(args)
    ]
    return list(rq_2014.mean_rows(found))


def _mrq(args: argparse.Namespace) -> Rows:
    points = []
    for setting in mrq_2016.settings(args.jobs):
        if setting.experiment in args.experiments:
            _report_progress(f"{setting.experiment}, {setting.label}")
            points += [mrq_2016.measure(setting, seed) for seed in _seeds(args)]
    return [row.to_dict() for row in mrq_2016.summarise(points)]


def _slurm(args: argparse.Namespace) -> Rows:
    return [row.to_dict() for row in slurm_2018.run(_seeds(args), _report_progress)]


def _dmr(args: argparse.Namespace) -> Rows:
    largest = max(application.maximum for application in malleable.APPLICATIONS)
    if args.gpus < largest:
        raise UsageError(f"--gpus is at least {largest}, which a job may need")
    rows = malleable_2018.run(args.jobs, _seeds(args), _report_progress, args.gpus)
    return [row.to_dict() for row in rows]


def _seeds(args: argparse.Namespace) -> range:
    return range(1, args.seeds + 1)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _report_progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
