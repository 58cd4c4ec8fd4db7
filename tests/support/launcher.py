# SPDX-License-Identifier: Apache-2.0
"""Both implementations of `gsaas run`: the C program, built with sanitizers, and the program in Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.waiting import PATIENCE

SOURCES = Path(__file__).parents[2] / "launcher"
FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", "-O1"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
OBJECTS = {
    "gsaas-run.so": ("libevent_core", "libevent_extra", "jansson", "nettle"),
    "gsaas-tls.so": ("libevent_core", "libevent_openssl", "openssl"),
}
"""The shared objects beside the program in C, and the libraries of each."""
SCRIPT = "from gsaasclient.cli.main import main\n\nraise SystemExit(main())\n"


def build(folder: Path) -> Path:
    """Build both programs in *folder*, side by side as they are installed; return the folder."""
    script = folder / "gsaas-cli"
    script.write_text(f"#!{sys.executable}\n{SCRIPT}")
    script.chmod(0o755)
    others = ("main.c", "tls.c")
    parts = {
        "gsaas": ["main.c", "python.c"],
        "gsaas-run.so": [path.name for path in SOURCES.glob("*.c") if path.name not in others],
        "gsaas-tls.so": ["tls.c"],
    }
    for name, sources in parts.items():
        arguments = ["-o", str(folder / name), *(str(SOURCES / source) for source in sources)]
        if name in OBJECTS:
            command = ["pkg-config", "--cflags", "--libs", *OBJECTS[name]]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            arguments += ["-fPIC", "-shared", *found.stdout.split()]
        subprocess.run(["gcc", *FLAGS, *SANITIZERS, *arguments, "-ldl"], check=True)
    return folder


@dataclass
class Launcher:
    """One of the two programs, and the credentials it is to use."""

    program: Path
    credentials: Path
    environment: dict[str, str] = field(default_factory=dict)

    def use(self, url: str, token: str) -> None:
        self.credentials.unlink(missing_ok=True)
        self.credentials.touch(mode=0o600)
        self.credentials.write_text(json.dumps({"url": url, "token": token}))

    def start(self, *words: str, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "GSAAS_CREDENTIALS": str(self.credentials),
            "ASAN_OPTIONS": "detect_leaks=0",  # it ends with what it has
            **self.environment,
        }
        return subprocess.Popen(
            [self.program, "run", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            text=True,
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE)
        assert "Sanitizer" not in err, err
        assert "runtime error" not in err, err
        return subprocess.CompletedProcess(words, process.returncode, out, err)
