# SPDX-License-Identifier: Apache-2.0
"""Points: the results of single measurements, kept in files, so that an interrupted study goes on where it stopped.

A point is used again as long as its arguments, the function that measured it, and the code of the simulations are the
same. Nothing but time is lost with these files.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import pickle
import textwrap
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, as_completed
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

CLOCK = "gsaas/sim/clock.py"
GPGPUMS = ("gsaas/gpgpums", "gsaas/objects", "gsaas/sim/claims.py", "gsaas/sim/policies.py")
BATCH = ("studies/batch", CLOCK)
HPC = ("studies/hpc", CLOCK, *GPGPUMS)
NGS = ("studies/ngs", CLOCK, *GPGPUMS)
OPENB = ("studies/openb", *GPGPUMS)
"""The files and folders with the code that decides the results of a simulation."""

A = TypeVar("A")
T = TypeVar("T")


class Points:
    """Measures what is not in *folder* yet, with *executor*. *progress* is called with a line of text for each."""

    def __init__(
        self, folder: Path, executor: Executor, progress: Callable[[str], object] = str
    ) -> None:
        self._folder = folder
        self._executor = executor
        self._progress = progress

    def map(
        self, function: Callable[[A], T], arguments: Sequence[A], sources: Sequence[str]
    ) -> list[T]:
        """Return *function* of each of *arguments*, in order. Both have to be picklable, as has the result.

        *sources* are the files and folders whose code decides the results. Equal arguments are measured once.
        """
        code = f"{fingerprint(tuple(sources))}\n{_statements(inspect.getsource(function))}"
        files = [self._file(function, code, argument) for argument in arguments]
        missing = {
            file: argument
            for file, argument in zip(files, arguments, strict=True)
            if not file.exists()
        }
        if kept := len(set(files)) - len(missing):
            self._progress(f"{kept} of {len(set(files))} are known from before")
        futures: dict[Future[T], Path] = {
            self._executor.submit(function, argument): file for file, argument in missing.items()
        }
        for done, future in enumerate(as_completed(futures), 1):
            _write(futures[future], future.result())
            self._progress(f"{done} of {len(futures)}")
        return [pickle.loads(file.read_bytes()) for file in files]  # noqa: S301 - our own

    def _file(self, function: Callable[..., Any], code: str, argument: Any) -> Path:
        name = hashlib.sha256(f"{code}\n{argument!r}".encode()).hexdigest()[:32]
        return self._folder / f"{function.__module__.rpartition('.')[2]}-{name}.pickle"


def _write(file: Path, result: Any) -> None:
    """Write a point; a process that is killed meanwhile leaves no half of one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(result))
    unfinished.rename(file)


@cache
def fingerprint(sources: tuple[str, ...]) -> str:
    """Return a hash of the Python files that *sources* name, relative to the root of the source tree."""
    root = Path(__file__).parents[1]
    found = hashlib.sha256()
    for source in sources:
        path = root / source
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            found.update(str(file.relative_to(root)).encode())
            found.update(_statements(file.read_text()).encode())
    return found.hexdigest()


def _statements(source: str) -> str:
    """Return Python code without what changes no result: comments, docstrings and layout."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [
                one
                for one in node.body
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ] or [ast.Pass()]
    return ast.unparse(tree)
