# SPDX-License-Identifier: Apache-2.0
"""The virtual environment that OpenStack lives in: exact versions, apart from the project's own."""

from __future__ import annotations

import os
import re

from tests.openstack.bed import commands, files
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import BIN, VENV, VERSION_LOCK
from tests.openstack.bed.work import Unit

PYTHON = "/usr/bin/python3"
"""Debian's, whose headers the packages bring; libvirt and uWSGI are built here."""

# OpenStack calls `sudo [PROJECT-rootwrap CONFIGURATION] COMMAND`. The bed is root already, and the
# real sudo would drop the mark that the environment carries.
SUDO = """\
#!/bin/sh
while :; do
    case $1 in
    -*) shift ;;
    *-rootwrap) shift 2 ;;
    *) exec "$@" ;;
    esac
done
"""


def units() -> list[Unit]:
    return [Unit("virtual environment", prepare=install)]


def install() -> None:
    """Install the versions of `requirements.lock`, and the stand-in for sudo."""
    once(VENV.with_name("venv.made-from"), files.digest([VERSION_LOCK]), _install_versions)
    files.write(BIN / "sudo", SUDO, mode=0o755)


def program(name: str) -> str:
    """The path of a program of the environment."""
    return str(VENV / "bin" / name)


def _install_versions() -> None:
    environment = dict(os.environ)
    if not (VENV / "bin" / "python").exists():
        commands.run(PYTHON, "-m", "venv", VENV, env=environment)
    uv = re.search(r"^uv==.*$", VERSION_LOCK.read_text(), re.MULTILINE)
    assert uv, "the lock names the installer itself"
    commands.run(program("pip"), "install", "-q", uv[0], env=environment)
    commands.run(
        *(program("uv"), "pip", "sync", "-q", "--compile-bytecode"),  # else each daemon does it
        "--no-cache",  # uWSGI built for another Python 3.11 would be taken from there, and load nothing
        *("--python", program("python"), VERSION_LOCK),
        env=environment,
        patience=1800,
    )
