# SPDX-License-Identifier: Apache-2.0
"""`python -m bench`: list the benchmarks, or run one.

Exit status: 0 when it ran, whether or not its bounds hold; 2 when there is no such benchmark.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import report

HELPERS = {"__init__", "__main__", "laboratory", "report"}
"""Modules of this package that are no benchmarks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(prog="bench", description="Run one of the benchmarks.")
    parser.add_argument("name", nargs="?", help="the benchmark to run; without it, all are listed")
    parser.add_argument(
        "parts", nargs="*", help="the parts of it to run, if it has parts; without any, all of them"
    )
    parser.add_argument(
        "--seeds", type=int, choices=range(1, 11), help="for sim: fewer random orders than ten"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of tables"
    )
    parser.add_argument(
        "--quick", action="store_true", help="measure a little, in seconds: to see that it runs"
    )
    args = parser.parse_args(argv)

    known = benchmarks()
    if args.name is None:
        for name, summary in known.items():
            print(f"  {name:<10}{summary}")
        return 0
    if args.name not in known:
        print(
            f"bench: there is no benchmark '{args.name}'; there are {', '.join(known)}",
            file=sys.stderr,
        )
        return 2
    module = importlib.import_module(f"bench.{args.name.replace('-', '_')}")
    if unknown := sorted(set(args.parts) - set(getattr(module, "PARTS", ()))):
        print(f"bench: {args.name} has no part {', '.join(unknown)}", file=sys.stderr)
        return 2
    options: dict[str, object] = {} if args.seeds is None else {"seeds": args.seeds}
    if args.quick:
        options["quick"] = True
    result = module.run(*args.parts, **options)
    print(json.dumps(result, indent=2) if args.json else report.readable(result))
    return 0


def benchmarks() -> dict[str, str]:
    """Return the name of each benchmark, and the first line of its docstring, without importing it."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return {
        file.stem.replace("_", "-"): (
            ast.get_docstring(ast.parse(file.read_text())) or ""
        ).partition("\n")[0]
        for file in files
        if file.stem not in HELPERS
    }


if __name__ == "__main__":
    sys.exit(main())
