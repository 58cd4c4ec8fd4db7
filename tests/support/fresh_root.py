# SPDX-License-Identifier: Apache-2.0
"""A root of its own for what an operator types: what is installed here, and nothing of GSaaS in /etc.

It is an overlay of this machine's root, in which nothing runs: no systemd either, as where an image is built.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support import folders

REPOSITORY = Path(__file__).parents[2]
ENTER = """\
folder=$1 repository=$2 run=$3
root=$folder/root
shift 3
mount -t overlay -o "lowerdir=/,upperdir=$folder/written,workdir=$folder/work" overlay "$root"
for each in /proc /dev /sys /tmp "$repository"; do
    mkdir -p "$root$each"
    mount --rbind "$each" "$root$each"
done
mount --bind "$run" "$root/run"
exec chroot "$root" "$@"
"""
FORGET = """\
for user in gsaas-monitor gsaas; do userdel $user || true; done
rm -rf /etc/gsaas /usr/local/bin/gsaas* /etc/systemd/system/gsaas-* /etc/systemd/system/*/gsaas-*
rm -f /etc/polkit-1/rules.d/gsaas*
mkdir -p /etc/polkit-1/rules.d
"""


class FreshRoot:
    """Use it in a `with` block, as root. *tools* are scripts by name, which go before all other programs."""

    def __init__(self, tools: Mapping[str, str] = MappingProxyType({})) -> None:
        self._tools = tools

    def __enter__(self) -> FreshRoot:
        self._folder = folders.make("root", folders.LARGE)
        for made in ("written", "work", "root", "run"):
            (self._folder / made).mkdir()
        self._folder.chmod(0o755)
        self.type(FORGET)
        for name, text in self._tools.items():
            self.write(f"/usr/local/sbin/{name}", text, 0o755)
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self._folder)

    @property
    def run_folder(self) -> Path:
        """What programs in it have as /run."""
        return self._folder / "run"

    def path(self, path: str) -> Path:
        """Where a file is that was written in it, as seen from outside."""
        return self._folder / "written" / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Have a file with *text*."""
        script = f"install -D -m {mode:o} /dev/stdin {path}"
        assert self.enter("sh", "-euc", script, stdin=text).returncode == 0

    def type(self, script: str) -> str:
        """Have root's shell run *script*, and return what it prints; fails the test if a line of it fails."""
        done = self.enter("bash", "-euo", "pipefail", "-c", script)
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        return done.stdout

    def manage(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run gsaas-manage of this clone."""
        return self.enter(sys.executable, "-m", "gsaas.cli.manage", *words, **environment)

    def enter(
        self, *command: str, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in it."""
        here = ("unshare", "--mount", "sh", "-euc", ENTER, "enter")
        return subprocess.run(
            [*here, str(self._folder), str(REPOSITORY), str(self.run_folder), *command],
            input=stdin,
            env={
                "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "PYTHONPATH": str(REPOSITORY),
                "LANG": "C.UTF-8",
                **{name: value for name, value in os.environ.items() if name == "VIRTUAL_ENV"},
                **environment,
            },
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
