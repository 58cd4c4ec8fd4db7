# SPDX-License-Identifier: Apache-2.0
"""Horizon with GSaaS's dashboard: installed in an environment of its own, and run against the test bed.

It runs as `nobody`, on a port of its own.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path

import requests

from tests.openstack.bed import commands, files, settings, venv
from tests.openstack.bed.once import once

ROOT = Path(__file__).parents[2]
LOCK = Path(__file__).with_name("horizon.lock")
DOCUMENT = ROOT / "doc" / "dashboard.md"
VENV = settings.CACHE / "horizon"
OURS = ("client", "dashboard")
"""The folders of the distributions that are installed beside Horizon, as an operator installs them."""
PARTS = ("*.py", "*.html", "*.js", "setup.cfg")
USER = "nobody"
TIMEOUT = 10
"""Seconds for which the dashboard waits for a service: a busy machine takes several to answer."""
PATIENCE = 120

SETTINGS = """\
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
SECRET_KEY = "{key}"
OPENSTACK_HOST = "127.0.0.1"
OPENSTACK_KEYSTONE_URL = "{keystone}"
OPENSTACK_KEYSTONE_MULTIDOMAIN_SUPPORT = False
OPENSTACK_KEYSTONE_DEFAULT_DOMAIN = "Default"
SESSION_ENGINE = "django.contrib.sessions.backends.cache"
CACHES = {{"default": {{"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}}}
STATIC_ROOT = "{static}"
COMPRESS_OFFLINE = True
WEBROOT = "/"
TIME_ZONE = "UTC"
OPENSTACK_NEUTRON_NETWORK = {{"enable_router": True, "enable_quotas": False}}
GSAAS_TIMEOUT = {timeout}
"""


def install() -> None:
    """Install the releases of `horizon.lock`, and the dashboard with its client as wheels of this source tree."""
    sources = sorted(path for name in OURS for part in PARTS for path in (ROOT / name).rglob(part))
    once(VENV.with_name("horizon.made-from"), files.digest([LOCK, *sources]), _install)


def _install() -> None:
    environment = dict(os.environ)
    uv = (venv.program("uv"), "pip")
    python = ("-q", "--python", program("python"))
    commands.run(venv.PYTHON, "-m", "venv", "--clear", "--without-pip", VENV, env=environment)
    commands.run(*uv, "sync", *python, "--compile-bytecode", LOCK, env=environment)
    with tempfile.TemporaryDirectory() as folder:
        copies = [shutil.copytree(ROOT / name, Path(folder) / name, ignore=_built) for name in OURS]
        commands.run(*uv, "install", *python, "--no-deps", *copies, env=environment)


_built = shutil.ignore_patterns("*.egg-info", "build", "__pycache__")


def enabling() -> str:
    """Return the commands with which the documentation enables the panels, as one script."""
    (block,) = (
        text
        for text in re.split(r"\n\n", DOCUMENT.read_text())
        if "collectstatic" in text and text.startswith("    ")
    )
    return textwrap.dedent(block)


def program(name: str) -> Path:
    """Return the path of a program of the environment."""
    return VENV / "bin" / name


def python(code: str, **more: str) -> str:
    """Run Python code in the environment; return what it prints."""
    return commands.run(program("python"), "-c", code, env={**os.environ, **more})


class Horizon:
    """Horizon, running."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.log = folder / "horizon.log"
        self.url = f"http://{settings.ADDRESS}:{_free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self) -> None:
        """Enable the panels as the documentation says, and collect and compress the static files."""
        place = Path(python("import openstack_dashboard as d; print(d.__path__[0])").strip())
        text = SETTINGS.format(
            key=secrets.token_hex(32),
            keystone=settings.KEYSTONE_URL,
            static=self._folder / "static",
            timeout=TIMEOUT,
        )
        # Readable by the user that Horizon runs as; this cloud's passwords are not in it.
        files.write(place / "local" / "local_settings.py", text, mode=0o644)
        commands.run("bash", "-euc", enabling(), env=self._environment())

    def start(self) -> None:
        """Start it, and return once it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    venv.program("uwsgi"),
                    f"--http-socket={self.url.removeprefix('http://')}",
                    "--module=openstack_dashboard.wsgi:application",
                    f"--virtualenv={VENV}",
                    f"--uid={USER}",
                    *(
                        "--processes=1",
                        "--threads=8",
                        "--enable-threads",
                        "--master",
                        "--lazy-apps",
                    ),
                    *("--need-app", "--die-on-term", "--buffer-size=65535"),
                    "--add-header=Connection: close",
                    f"--static-map=/static={self._folder / 'static'}",
                ],
                env=self._environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE
        while not self._answers():
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(PATIENCE)

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/auth/login/", timeout=PATIENCE).ok
        except requests.ConnectionError:
            return False

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "DJANGO_SETTINGS_MODULE": "openstack_dashboard.settings",
        }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((settings.ADDRESS, 0))
        port: int = probe.getsockname()[1]
        return port
