# SPDX-License-Identifier: Apache-2.0
"""Build the container images of GSaaS with podman: `python -m images.build [ROLE ...] [--base IMAGE]`.

The images are built of the wheels in `build/dist`, which `./dev package` makes. pip in a build uses the settings of pip
on this machine, which it gets as build secrets, so that no image contains them.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
ROLES = ("api", "engine", "rodvr", "monitor", "client")
CA_IN_BUILD = "/run/pip-ca.crt"
"""Where the Containerfile mounts the certificates of pip."""
LOCATIONS = ("find-links", "index-url", "extra-index-url")
"""Settings of pip that name places, of which folders of this machine do not exist within a build."""
KEPT = (
    *LOCATIONS,
    "cert",
    "default-timeout",
    "no-index",
    "proxy",
    "retries",
    "timeout",
    "trusted-host",
)
"""Settings of pip that say how packages are reached. The others say which are installed, and how, on this machine."""


def pip_settings(listed: Iterable[str]) -> dict[str, str]:
    """Return pip's settings by name, from the lines of `pip config list`; variables override files, as in pip."""
    found: dict[str, str] = {}
    # ":env:" sorts before the names of sections, and has to come last.
    for line in sorted(listed, key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = ast.literal_eval(value)
    return found


def pip_conf(settings: Mapping[str, str]) -> str:
    """Return a `pip.conf` with those of the *settings* that a build needs: how packages are reached (`KEPT`)."""
    lines = ["[global]"]
    for name, value in settings.items():
        if name not in KEPT:
            continue
        if name == "cert":
            value = CA_IN_BUILD
        words = value.split()  # a value of several lines is one of several words
        if name in LOCATIONS:
            words = [word for word in words if not word.startswith(("/", "file:"))]
        if value := " ".join(words):
            lines.append(f"{name} = {value}")
    return "\n".join([*lines, ""])


def build_command(
    role: str, base: str | None, secrets: Mapping[str, Path], arguments: Sequence[str] = ()
) -> list[str]:
    """Return the command that builds the image of *role*; without *base*, on the one that the Containerfile names."""
    return [
        *("podman", "build", "--file=images/Containerfile", f"--tag=gsaas-{role}"),
        f"--build-arg=ROLE={role}",
        *("--layers", "--format=docker", "--network=host"),
        *([f"--build-arg=BASE={base}"] if base else []),
        *(f"--secret=id={name},src={path}" for name, path in secrets.items()),
        *arguments,
        ".",
    ]


def build(roles: Sequence[str], base: str | None, arguments: Sequence[str] = ()) -> None:
    """Build the images of *roles*. Raises `subprocess.CalledProcessError`."""
    listing = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
    settings = pip_settings(listed.splitlines())
    with tempfile.TemporaryDirectory() as folder:
        secrets = {"pip": Path(folder, "pip.conf")}
        secrets["pip"].write_text(pip_conf(settings), encoding="utf-8")
        if "cert" in settings:
            secrets["pip-ca"] = Path(settings["cert"])
        for role in roles:
            command = build_command(role, base, secrets, arguments)
            subprocess.run(command, check=True, cwd=REPOSITORY)


def main() -> int:
    """Build what the command line names; return the exit status."""
    parser = argparse.ArgumentParser(prog="./dev images", description="Build container images.")
    parser.add_argument(
        "roles", nargs="*", metavar="ROLE", help=f"of {', '.join(ROLES)}; default: all"
    )
    parser.add_argument("--base", help="the image to build on (default: Debian 13)")
    options, arguments = parser.parse_known_args()
    if unknown := set(options.roles) - set(ROLES):
        parser.error(f"there is no role {min(unknown)}")
    try:
        build(options.roles or ROLES, options.base, arguments)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return os.EX_OK


if __name__ == "__main__":
    sys.exit(main())
