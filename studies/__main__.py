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
from studies.document import FRONTIER, TIED_SHOWN
from studies.frontier import svg
from studies.hpc import malleable
from studies.hpc.slurm import GpuMode
from studies.openb import local, trace
from studies.openb.schedulers import SCHEDULERS
from studies.openb.trace import TraceError
from studies.recipes import (
    dmr_2018,
    malleable_2018,
    mrq_2016,
    mrq_figures_2016,
    openb_cloudified,
    openb_local,
    openb_remote,
    rq_2014,
    slurm_2018,
)

Rows = list[dict[str, Any]]

MOST_LOAD = 100.0
"""Times the capacity: with more, most of the time goes into arrivals that are all rejected."""


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
        type=_positive(float, MOST_LOAD),
        default=local.LOAD,
        help=f"how many times the capacity of the GPUs arrivals ask for ({local.LOAD})",
    )
    names = [scheduler.name for scheduler in SCHEDULERS]
    openb.add_argument("--schedulers", nargs="+", choices=names, default=names, metavar="NAME")

    remote = _study(
        studies, "remote", _remote, "what is left of the gain if remote GPUs are not free (openb)"
    )
    remote.add_argument(
        "--workloads",
        nargs="+",
        choices=trace.UNCONSTRAINED,
        default=trace.UNCONSTRAINED,
        metavar="NAME",
    )
    remote.add_argument(
        "--svg", type=Path, help="file to draw the frontier of the default workload to"
    )

    rq = _study(studies, "rq", _rq, "RQ against the G queue (PDCAT 2014)")
    rq.add_argument("--jobs", type=_positive(int), default=tsubame.JOBS, help="number of jobs")
    rq.add_argument("--nodes", type=_positive(int), nargs="+", default=rq_2014.NODES)

    mrq = _study(studies, "mrq", _mrq, "RQ and MRQ against FCFS (2016)")
    mrq.add_argument("--jobs", type=_positive(int), default=mrq_2016.JOBS, help="number of jobs")
    experiments = list(dict.fromkeys(one.experiment for one in _mrq_settings(1)))
    mrq.add_argument(
        "--experiments",
        nargs="+",
        choices=experiments,
        default=experiments,
        metavar="NAME",
        help=", ".join(experiments),
    )

    slurm = _study(studies, "slurm", _slurm, "remote GPUs under Slurm (thesis, chapter 4)")
    for option, names in (
        ("clusters", list(slurm_2018.SETS)),
        ("modes", [str(mode) for mode in GpuMode]),
        ("policies", list(slurm_2018.POLICIES)),
    ):
        slurm.add_argument(
            f"--{option}",
            nargs="+",
            choices=names,
            default=names,
            metavar="NAME",
            help=", ".join(f'"{name}"' if " " in name else name for name in names),
        )

    dmr = _study(studies, "dmr", _dmr, "malleable jobs (thesis, chapters 6 and 7)")
    dmr.add_argument(
        "--chapter",
        type=int,
        choices=(6, 7),
        default=7,
        help="6: the workloads of Tables 6.2 and 6.5; 7: those of section 7.3, of any size (7)",
    )
    dmr.add_argument(
        "--jobs",
        type=_positive(int),
        nargs="+",
        help=f"numbers of jobs ({' '.join(map(str, malleable_2018.SIZES))})",
    )
    dmr.add_argument("--gpus", type=_positive(int), help=f"({malleable_2018.GPUS})")
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


def _positive(kind: type[int] | type[float], most: float = 1e6) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not between 0 and {most:g}")
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


def _remote(args: argparse.Namespace) -> Rows:
    first = openb_cloudified.SEEDS[0]
    seeds = range(first, first + args.seeds)
    rows = [
        row.to_dict()
        for workload in args.workloads
        for row in openb_remote.rows(workload, seeds, _report_progress)
    ]
    drawn = [row for row in rows if (row["workload"], row["shares"]) == FRONTIER]
    if args.svg is not None:
        if not drawn:
            raise UsageError(f"--svg draws the workload {FRONTIER[0]}, which is not among these")
        tied = [
            openb_cloudified.measure(one).to_dict()
            for one in openb_cloudified.settings(FRONTIER[0], seeds, [])
            if one.shares == FRONTIER[1] and one.placement in TIED_SHOWN
        ]
        args.svg.write_text(svg(drawn, tied))
    return rows


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
    for setting in _mrq_settings(args.jobs):
        if setting.experiment in args.experiments:
            _report_progress(f"{setting.experiment}, {setting.label}")
            points += [mrq_2016.measure(setting, seed) for seed in _seeds(args)]
    return [row.to_dict() for row in mrq_2016.summarise(points)]


def _mrq_settings(jobs: int) -> list[mrq_2016.MrqSetting]:
    return [*mrq_2016.settings(jobs), *mrq_figures_2016.settings(jobs)]


def _slurm(args: argparse.Namespace) -> Rows:
    chosen = [
        one
        for one in slurm_2018.settings(_seeds(args))
        if one.cluster in args.clusters
        and str(one.mode) in args.modes
        # Without remote GPUs there is nothing for a policy to choose.
        and (one.mode is GpuMode.CUDA or one.policy in args.policies)
    ]
    if not chosen:
        raise UsageError("no cluster is run in these modes with these policies")
    return [row.to_dict() for row in slurm_2018.run(chosen, _report_progress)]


def _dmr(args: argparse.Namespace) -> Rows:
    if args.chapter == 6:
        if args.jobs or args.gpus:
            raise UsageError("--jobs and --gpus are for the workloads of chapter 7")
        return [row.to_dict() for row in dmr_2018.run(_seeds(args), _report_progress)]
    gpus = args.gpus or malleable_2018.GPUS
    largest = max(application.maximum for application in malleable.APPLICATIONS)
    if gpus < largest:
        raise UsageError(f"--gpus is at least {largest}, which a job may need")
    sizes = args.jobs or malleable_2018.SIZES
    rows = malleable_2018.run(sizes, _seeds(args), _report_progress, gpus)
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
