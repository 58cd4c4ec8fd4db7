# SPDX-License-Identifier: Apache-2.0
"""Since when each lease has been without a job: a small file that stays between the runs of `reconcile`.

A controller of Slurm that has lost its state does not know jobs that run. It learns of them, and ends them, when their
nodes register again. So a lease is not released when it is seen without a job, but when it still is some time later.
The file may be lost at any moment: then leases are released later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gsaasclient import ClientError


def update(since: Mapping[str, float], seen: Iterable[str], now: float) -> dict[str, float]:
    """Return since when each lease in *seen* has been without a job; one that has its job again is forgotten.

    Times are seconds since 1970. A time in the future, which a clock that was set back leaves, becomes *now*.
    """
    return {lease: min(since.get(lease, now), now) for lease in seen}


def due(since: Mapping[str, float], grace: float, now: float) -> list[str]:
    """Return the leases that have been without a job for at least *grace* seconds."""
    return [lease for lease, first in since.items() if now - first >= grace]


def read(path: Path) -> dict[str, float]:
    """Return what the file says; nothing if it does not exist or is damaged. Raises `ClientError`."""
    try:
        found = json.loads(path.read_text())
        return {str(lease): float(first) for lease, first in found.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClientError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        return {}


def write(path: Path, since: Mapping[str, float]) -> None:
    """Replace the file. A concurrent reader sees the old or the new one. Raises `ClientError`."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made.write_text(json.dumps(since))
        made.replace(path)
    except OSError as error:
        raise ClientError(f"{path} cannot be written: {error.strerror}") from None
