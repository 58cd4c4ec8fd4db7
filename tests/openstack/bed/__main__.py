# SPDX-License-Identifier: Apache-2.0
"""The command line of the bed."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from tests.openstack.bed import bed, credentials, gsaas, settings
from tests.openstack.bed.errors import BedError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="cloud", description="A small real OpenStack on this machine, for tests."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="bring it up, or finish bringing it up")
    up.add_argument(
        "--for",
        type=int,
        metavar="PID",
        dest="borrower",
        help="lend it to a process, if it is down",
    )
    status = commands.add_parser("status", help="show what runs; exits with 0 if all of it does")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    down = commands.add_parser(
        "down", help="stop it; its databases and servers stay for the next `up`"
    )
    down.add_argument(
        "--for",
        type=int,
        metavar="PID",
        dest="borrower",
        help="only if it is lent to this process, or to one that is gone",
    )
    wipe = commands.add_parser("wipe", help="stop it and remove its state")
    wipe.add_argument("--all", action="store_true", help="also what takes long to install")
    arguments = parser.parse_args()

    if os.geteuid() != 0:
        say("cloud: needs root, for its bridges, namespaces and virtual machines")
        return 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no need to tidy up: the next command does
    try:
        match arguments.command:
            case "up":
                bed.up(say, arguments.borrower)
                show_credentials()
            case "status":
                return show_status(arguments.json)
            case "down":
                bed.down(say, arguments.borrower)
            case "wipe":
                bed.wipe(say, everything=arguments.all)
    except BedError as error:
        say(f"cloud: {error}")
        return 1
    return 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show_credentials() -> None:
    print(f"export OS_CLIENT_CONFIG_FILE={credentials.CLOUDS}")
    print(f"# then OS_CLOUD={', '.join(credentials.USERS)}; or, in a shell, one of")
    for user in credentials.USERS:
        print(f"#   . {credentials.openrc(user)}")
    print(f"# clients: {settings.VENV / 'bin' / 'openstack'}, {gsaas.program('gsaas')}")
    print(f"# OS_CLOUD={settings.TENANTS[0]} gsaas -l -ncgpus=2 -poolmem=2048 -mode=shared")


def show_status(as_json: bool) -> int:
    status = bed.status()
    text = json.dumps(status, indent=2) if as_json else as_table(status)
    sys.stdout.write(f"{text}\n")
    return 0 if status["state"] == "up" else 1


def as_table(status: Mapping[str, Any]) -> str:
    lines = [f"{status['state']}, in {status['directory']}"]
    for row in status["daemons"]:
        ports = " ".join(map(str, row["ports"]))
        age = "" if row["seconds"] is None else f"{row['seconds']} s"
        lines.append(f"  {row['name']:28} {row['pid'] or 'down':>8} {age:>10}  {ports}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
