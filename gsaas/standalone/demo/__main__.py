# SPDX-License-Identifier: Apache-2.0
"""`python -m gsaas.standalone.demo`: start GSaaS, launch VMs, prove that their programs compute.

Exit status: 0 if every proof held, 1 if one did not or anything else failed, 130 if interrupted. In each case
everything that was made is removed, unless `--keep` is given.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gsaas.standalone.demo import snapshot
from gsaas.standalone.demo.computing import Computing
from gsaas.standalone.demo.screen import Screen
from gsaas.standalone.demo.simulated import Simulated
from gsaas.standalone.demo.standalone_process import ProcessError, StandaloneProcess
from gsaas.standalone.demo.steps import Steps
from gsaas.standalone.demo.user import User
from gsaas.standalone.namespaces import Namespaces, namespace_exists
from gsaasclient import ClientError

RUN = Path("/run")
KEPT_STATE_DIR = RUN / "gsaas"
"""The state folder with `--keep`: `gsaas` looks for credentials there by default."""
TEMPORARY_PREFIX = "gsaas-demo-"
"""Beginning of the name of a state folder that is removed with the demonstration."""
KEPT_LISTEN, TEMPORARY_LISTEN = "127.0.0.1:9870", "127.0.0.1:0"
PREFIX = "gsaas-"
"""Beginning of the names of network namespaces."""

KEPT_RUNNING = """\
GSaaS is still running. Try:

  ./dev run gsaas list
  ./dev run gsaas -l -ncgpus=2 -poolmem=256 -mode=shared -name=mine
  ./dev run gsaas exec mine -- {example}
  ./dev run gsaas gpus
  ./dev run gsaas -t -id=mine

You are the administrator; GSAAS_CREDENTIALS={tenant} makes you the tenant
who launched the VMs above.

  ./dev demo --clean        ends and removes all of it"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demonstration and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="./dev demo", description="See programs compute through GSaaS, in less than a minute."
    )
    parser.add_argument(
        "--simulated",
        action="store_true",
        help="with eight simulated GPUs, which compute nothing, instead of this machine's CPU",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="leave it running afterwards")
    choice.add_argument("--clean", action="store_true", help="end what --keep left running")
    args = parser.parse_args(argv)

    screen = Screen()
    # SIGTERM removes everything too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if os.geteuid() != 0:
            raise ProcessError("the hosts and VMs are network namespaces, which only root can make")
        if args.clean:
            return _clean(screen)
        _remove_killed()
        if snapshot.namespaces(PREFIX):
            raise ProcessError(
                f"GSaaS seems to run here already: there are network namespaces {PREFIX}*. "
                "./dev demo --clean removes what a demonstration left"
            )
        steps: type[Steps] = Simulated
        if not args.simulated:
            if _has_tvm():
                steps = Computing
            else:
                screen.aside(
                    "TVM is not installed, so GPUs are simulated: pip install 'gsaas[tvm]'"
                )
        return _run_and_keep(screen, steps) if args.keep else _run_and_remove(screen, steps)
    except KeyboardInterrupt:
        print("\ninterrupted; everything is removed", file=sys.stderr)
        return 130
    except (ProcessError, ClientError, RuntimeError) as error:
        # If cleaning up failed as well, the error before it is its context, and is printed first.
        for failure in filter(None, (error.__context__, error)):
            print(f"demo: {failure}", file=sys.stderr)
        return 1


def _run_and_remove(screen: Screen, steps: type[Steps]) -> int:
    """Run the demonstration, remove everything, and prove that the machine is as it was before."""
    before = snapshot.take(PREFIX)
    state_dir = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=RUN))
    process = StandaloneProcess(state_dir, PREFIX)
    with _locked(state_dir):
        try:
            demonstration = _run(screen, steps, process, TEMPORARY_LISTEN)
            demonstration.terminate_all()
        finally:
            _remove(process)
    screen.heading("The machine, as it was before")
    changed = snapshot.lasting_differences(before, PREFIX)
    left = [what for what in changed if snapshot.is_of_gsaas(what, PREFIX)]
    for what in left:
        screen.proof(False, f"left behind: {what}")
    if not left:
        screen.proof(True, f"nothing of GSaaS is left among its {', '.join(before)}")
    if not changed:
        screen.proof(True, "nothing at all is different from before")
    for what in set(changed) - set(left):
        screen.aside(f"changed meanwhile by another program: {what}")
    return _report(screen, demonstration.failed + left)


def _run_and_keep(screen: Screen, steps: type[Steps]) -> int:
    """Run the demonstration, and leave everything running."""
    process = StandaloneProcess(KEPT_STATE_DIR, PREFIX)
    try:
        demonstration = _run(screen, steps, process, KEPT_LISTEN)
    except BaseException:  # an interrupt as well
        _remove(process)
        raise
    status = _report(screen, demonstration.failed)
    print(KEPT_RUNNING.format(tenant=process.tenant_credentials, example=steps.example))
    return status


def _has_tvm() -> bool:
    """Return whether what computes is installed; there is no package of it for some processors."""
    return importlib.util.find_spec("tvm") is not None


def _remove_killed() -> None:
    """Remove what demonstrations without --keep that were killed have left: no process locks their state folders."""
    for state_dir in RUN.glob(f"{TEMPORARY_PREFIX}*"):
        with suppress(BlockingIOError), _locked(state_dir):
            names = Namespaces(state_dir).names()
            # Without any of them, they are in another mount namespace: what is there is not ours to remove.
            if not names or any(map(namespace_exists, names)):
                StandaloneProcess(state_dir, PREFIX).remove()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock *folder* for the block. Raises `BlockingIOError` if another process has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _clean(screen: Screen) -> int:
    """Remove what `--keep`, or a demonstration that was killed, has left."""
    for state_dir in [KEPT_STATE_DIR, *RUN.glob(f"{TEMPORARY_PREFIX}*")]:
        _remove(StandaloneProcess(state_dir, PREFIX))
    screen.paragraph("Nothing of the demonstration is left.")
    return 0


def _run(screen: Screen, steps: type[Steps], process: StandaloneProcess, listen: str) -> Steps:
    """Start GSaaS, and run the demonstration with what it leaves running; return it with its result."""
    screen.paragraph(steps.introduction)
    process.start(listen, computes=steps is Computing)
    tenant, admin = (
        User(screen, credentials)
        for credentials in (process.tenant_credentials, process.admin_credentials)
    )
    demonstration = steps(screen, tenant, admin)
    demonstration.run()
    return demonstration


def _remove(process: StandaloneProcess) -> None:
    """Stop the process and remove everything. Further signals are ignored, or they would interrupt that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process.remove()


def _report(screen: Screen, failed: list[str]) -> int:
    """Print which proofs failed; return the exit status."""
    if not failed:
        screen.heading("Every proof held.")
        return 0
    screen.heading(f"{len(failed)} of the proofs did not hold:")
    for sentence in failed:
        screen.proof(False, sentence)
    return 1


if __name__ == "__main__":
    sys.exit(main())
