# SPDX-License-Identifier: Apache-2.0
"""cloud-init itself, to ask what it makes of our user data.

Its code is taken out of the Debian or Ubuntu package without installing it, so that it never runs
when this machine boots, and is driven in a process of its own that executes nothing it was given:

    python -m tests.support.cloud_init      # fetch it, once; needs apt-get and dpkg-deb, not root

`GSAAS_CLOUD_INIT` may name a folder that holds another release's `cloudinit` package.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
FETCHED = REPOSITORY / "build" / "cloud-init"
CODE = "usr/lib/python3/dist-packages"
PACKAGES = ("cloud-init-base", "cloud-init")  # newer releases keep the code in the first


@dataclass(frozen=True)
class Part:
    """One leaf of user data after cloud-init took it apart."""

    type: str
    filename: str
    content: bytes


@dataclass(frozen=True)
class Outcome:
    """What a server is left with: all of it cloud-init's own work."""

    parts: list[Part]
    config: dict[str, Any]
    """The cloud-config that the parts merged into."""
    files: dict[str, str]
    """Scripts and boothooks as written below `/var/lib/cloud/instance`, by relative path."""
    log: list[str]
    """Warnings and errors."""


class CloudInit:
    """A running cloud-init that reads user data; close it when done."""

    def __init__(self) -> None:
        probe = Path(__file__).with_name("cloud_init_probe.py")
        self._process = subprocess.Popen(
            # Without byte code, which newer releases would write beside part handlers, with times in it.
            [sys.executable, "-B", str(probe), str(_package())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def read(self, user_data: bytes) -> Outcome:
        """Take *user_data* apart and handle each part, as at a server's first boot."""
        answer = self._ask({"read": base64.b64encode(user_data).decode()})
        parts = [
            Part(p["type"], p["filename"], base64.b64decode(p["content"])) for p in answer["parts"]
        ]
        return Outcome(parts, answer["config"], answer["files"], answer["log"])

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"cloud-init ended with status {self._process.wait()}")
        found = json.loads(answer)
        if "failure" in found:
            raise RuntimeError(found["failure"])
        return found


def _package() -> Path:
    given = os.environ.get("GSAAS_CLOUD_INIT")
    folder = Path(given) if given else FETCHED / CODE
    if not (folder / "cloudinit").is_dir():
        raise RuntimeError(
            f"cloud-init is not in {folder}: run `./dev setup`, "
            "or only `.venv/bin/python -m tests.support.cloud_init`"
        )
    return folder


def fetch() -> None:
    """Put the package's files into `build/cloud-init`, if they are not there.

    They get there all at once, or not at all if this is interrupted.
    """
    if (FETCHED / CODE / "cloudinit").is_dir():
        return
    shutil.rmtree(FETCHED, ignore_errors=True)
    FETCHED.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cloud-init-", dir=FETCHED.parent) as name:
        archives, files = Path(name, "archives"), Path(name, "files")
        archives.mkdir()
        for package in PACKAGES:
            subprocess.run(["apt-get", "download", "-q", package], cwd=archives, check=False)
            for archive in archives.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg-deb", "--extract", archive, files], check=True)
            if (files / CODE / "cloudinit").is_dir():
                files.rename(FETCHED)
                break
    _package()


if __name__ == "__main__":
    fetch()
