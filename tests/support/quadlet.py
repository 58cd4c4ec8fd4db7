# SPDX-License-Identifier: Apache-2.0
"""The options of `podman run` that the units in `images/quadlet` stand for."""

from __future__ import annotations

import shlex

from images.build import REPOSITORY

FOLDER = REPOSITORY / "images" / "quadlet"
OPTIONS = {
    "Network": "--network={}",
    "DropCapability": "--cap-drop={}",
    "AddDevice": "--device={}",
    "Unmask": "--security-opt=unmask={}",
    "Volume": "--volume={}",
    "PodmanArgs": "{}",
}
FLAGS = {"NoNewPrivileges": "--security-opt=no-new-privileges", "ReadOnly": "--read-only"}
OF_SYSTEMD = ("Image", "Notify", "HealthCmd")
"""Keys that change how systemd or podman watches the container, not what it may do."""


def read(role: str) -> list[tuple[str, str]]:
    """Return the keys and values of the section [Container], in their order; keys may be repeated."""
    lines = (FOLDER / f"gsaas-{role}.container").read_text(encoding="utf-8").splitlines()
    section = lines[lines.index("[Container]") + 1 : lines.index("[Service]")]
    pairs = [line.split("=", 1) for line in section if line and not line.startswith("#")]
    return [(key, value) for key, value in pairs]


def run_options(role: str, *left_out: str) -> list[str]:
    """Return what the unit of *role* gives to `podman run`, without the keys in *left_out*."""
    words = []
    for key, value in read(role):
        if key in left_out or key in OF_SYSTEMD:
            continue
        if key == "AddCapability":
            words += [f"--cap-add={capability}" for capability in value.split()]
        elif key in FLAGS:
            assert value == "true"
            words.append(FLAGS[key])
        else:
            words.append(OPTIONS[key].format(value))
    return words


def documented(text: str) -> dict[str, list[str]]:
    """Return the options of every `podman run … localhost/gsaas-ROLE` in *text* that starts a service, by role."""
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True) if "podman run -d" in line else []
        if words:
            found[words[-1].removeprefix("localhost/gsaas-")] = words[3:-1]
    return found
