"""`python -m gsaas.standalone.demo`: start GSaaS on simulated GPUs, launch VMs, prove that they work.

Exit status: 0 when every proof held, 1 when one failed or something else did, 130 interrupted.
Whatever happens, what was made is removed, unless `--keep` asks for it to stay.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gsaas.client import ClientError
from gsaas.standalone.demo import machine
from gsaas.standalone.demo.person import Person
from gsaas.standalone.demo.screen import Screen
from gsaas.standalone.demo.service import Service, ServiceError
from gsaas.standalone.demo.story import Story

RUN = Path("/run")
KEPT = RUN / "gsaas"
"""Where `gsaas` looks for credentials unless told otherwise."""
PASSING = "gsaas-demo-"
"""Beginning of the name of a state folder that goes with the demonstration."""
KEPT_LISTEN, PASSING_LISTEN = "127.0.0.1:9870", "127.0.0.1:0"
PREFIX = "gsaas-"

INTRODUCTION = """\
GSaaS on this one machine: two GPU hosts with four GPUs of 8192 MiB each, and a host that only runs
VMs. Hosts and VMs are network namespaces; the GPUs are simulated and only say who they are. All
between them is the real thing: the scheduler, the database, the API, RODVR's rules in the kernel."""

KEPT_RUNNING = """\
GSaaS is still running, and so are the VMs. Try:

  ./dev run gsaas list
  ./dev run gsaas -l -ncgpus=1 -poolmem=1024 -mode=shared -name=mine
  ./dev run gsaas exec mine -- ip -brief address
  ./dev run gsaas gpus
  ./dev run gsaas -t -id=mine

You are the administrator; GSAAS_CREDENTIALS={tenant} makes you the tenant
who launched the VMs above.

  ./dev demo --clean        ends and removes all of it"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description="See GSaaS work, on simulated GPUs, in a few seconds."
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--keep", action="store_true", help="leave it running afterwards")
    choice.add_argument("--clean", action="store_true", help="end what --keep left running")
    args = parser.parse_args(argv)

    screen = Screen()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both end in good order
    try:
        if os.geteuid() != 0:
            raise ServiceError("the hosts and VMs are network namespaces, which only root can make")
        if args.clean:
            return _clean(screen)
        if machine.namespaces(PREFIX):
            raise ServiceError(
                f"GSaaS seems to run here already: there are network namespaces {PREFIX}*. "
                "./dev demo --clean removes what a demonstration left"
            )
        return _keep(screen) if args.keep else _show(screen)
    except KeyboardInterrupt:
        print("\ninterrupted; everything is removed", file=sys.stderr)
        return 130
    except (ServiceError, ClientError, RuntimeError) as error:
        # Where cleaning up failed as well, what failed first is worth more.
        for failure in filter(None, (error.__context__, error)):
            print(f"demo: {failure}", file=sys.stderr)
        return 1


def _show(screen: Screen) -> int:
    """Everything, and nothing left of it."""
    before = machine.picture(PREFIX)
    service = Service(Path(tempfile.mkdtemp(prefix=PASSING, dir=RUN)), PREFIX)
    try:
        story = _tell(screen, service, PASSING_LISTEN)
        story.terminate_all()
    finally:
        _remove(service)
    screen.heading("The machine, as it was before")
    changed = machine.settled(before, PREFIX)
    left = [what for what in changed if machine.ours(what, PREFIX)]
    for what in left:
        screen.proof(False, f"left behind: {what}")
    if not left:
        screen.proof(True, f"nothing of ours among its {', '.join(before)}")
    if not changed:
        screen.proof(True, "nothing at all is different from before")
    for what in set(changed) - set(left):
        screen.aside(f"changed meanwhile by others: {what}")
    return _verdict(screen, story.failed + left)


def _keep(screen: Screen) -> int:
    """Everything, and it stays."""
    service = Service(KEPT, PREFIX)
    try:
        story = _tell(screen, service, KEPT_LISTEN)
    except BaseException:
        _remove(service)
        raise
    status = _verdict(screen, story.failed)
    print(KEPT_RUNNING.format(tenant=service.tenant))
    return status


def _clean(screen: Screen) -> int:
    for state_dir in [KEPT, *RUN.glob(f"{PASSING}*")]:
        _remove(Service(state_dir, PREFIX))
    screen.say("Nothing of the demonstration is left.")
    return 0


def _tell(screen: Screen, service: Service, listen: str) -> Story:
    screen.say(INTRODUCTION)
    service.start(listen)
    story = Story(screen, Person(screen, service.tenant), Person(screen, service.admin))
    story.launch_all()
    return story


def _remove(service: Service) -> None:
    """Stop and clean, not to be interrupted once more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    service.remove()


def _verdict(screen: Screen, failed: list[str]) -> int:
    if not failed:
        screen.heading("Every proof held.")
        return 0
    screen.heading(f"{len(failed)} of the proofs did not hold:")
    for sentence in failed:
        screen.proof(False, sentence)
    return 1


if __name__ == "__main__":
    sys.exit(main())
