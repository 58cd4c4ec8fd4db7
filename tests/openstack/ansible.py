# SPDX-License-Identifier: Apache-2.0
"""Ansible with the collection openstack.cloud, in an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.openstack.bed import commands, credentials, files, settings, venv
from tests.openstack.bed.once import once

LOCK = Path(__file__).with_name("ansible.lock")
VENV = settings.CACHE / "ansible"


def install() -> None:
    """Install the releases of `ansible.lock`."""
    once(VENV.with_name("ansible.made-from"), files.digest([LOCK]), _install)


def _install() -> None:
    environment = dict(os.environ)
    commands.run(venv.PYTHON, "-m", "venv", "--clear", "--without-pip", VENV, env=environment)
    uv = (venv.program("uv"), "pip", "sync", "-q", "--python", program("python"))
    commands.run(*uv, LOCK, env=environment)


def program(name: str) -> Path:
    """Return the path of a program of the environment."""
    return VENV / "bin" / name


def play(book: Path) -> subprocess.CompletedProcess[str]:
    """Run a playbook with the clouds of clouds.yaml."""
    environment = {
        "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
        "HOME": str(book.parent),
        "LANG": "C.UTF-8",
        "OS_CLIENT_CONFIG_FILE": str(credentials.CLOUDS),
    }
    return subprocess.run(
        [program("ansible-playbook"), book], capture_output=True, text=True, env=environment
    )
