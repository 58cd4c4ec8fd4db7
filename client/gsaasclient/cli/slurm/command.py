# SPDX-License-Identifier: Apache-2.0
"""`gsaas slurm`: which program Slurm wants, and what it learns by the exit status."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace

from gsaasclient import Client, ClientError
from gsaasclient.cli.parser import UsageError
from gsaasclient.cli.slurm import controller, node
from gsaasclient.cli.slurm.jobs import JobError
from gsaasclient.cli.slurm.log import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PROGRAMS = {
    "prolog-slurmctld": controller.prolog,
    "reconcile": controller.reconcile,
    "prolog": node.prolog,
    "epilog": node.epilog,
}


def slurm(client: Client, args: SimpleNamespace) -> int:
    """Run the program that the first word names; return the exit status.

    A failure is also written to the system log, because Slurm does not show what its prologs print.
    """
    if args.program is None:
        raise UsageError(f"a program is needed: {', '.join(PROGRAMS)}")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return PROGRAMS[args.program](client, args, os.environ)
    except JobError as error:
        log(args.program, str(error))
        raise ClientError(str(error)) from None
    except ClientError as error:
        log(args.program, str(error))
        raise


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt("ended by a signal")
