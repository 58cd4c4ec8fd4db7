# SPDX-License-Identifier: Apache-2.0
"""The Containerfiles and units of the images, read by parsers of others, and compared with each other and the guide."""

from __future__ import annotations

import configparser
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from images.build import REPOSITORY, ROLES
from tests.support import quadlet

SERVICES = [role for role in ROLES if role != "client"]
GUIDE = (REPOSITORY / "doc" / "containers.md").read_text(encoding="utf-8")
GENERATOR = Path("/usr/libexec/podman/quadlet")
SECRET = re.compile(r"password|passwd|token=|BEGIN .*KEY|https?://[^/\s]+@", re.IGNORECASE)


def read(role: str) -> DockerfileParser:
    content = (REPOSITORY / "images" / role / "Containerfile").read_bytes()
    return DockerfileParser(fileobj=io.BytesIO(content))


def last_stage(role: str) -> list[dict[str, str]]:
    """Return the instructions of the image itself, after those of the stage that builds it."""
    instructions = read(role).structure
    start = max(i for i, each in enumerate(instructions) if each["instruction"] == "FROM")
    return instructions[start:]


def values(role: str, instruction: str) -> list[str]:
    return [each["value"] for each in last_stage(role) if each["instruction"] == instruction]


def unit_capabilities(path: Path) -> set[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read(path)
    return set(parser.get("Service", "AmbientCapabilities", fallback="").split())


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_its_environment_of_python_on_the_base_and_runs_as_a_user(role):
    assert read(role).parent_images[0] == "docker.io/library/debian:13-slim"
    stage = last_stage(role)
    assert stage[0]["value"] == "base"
    assert "--from=build /opt/gsaas /opt/gsaas" in values(role, "COPY")
    # polkit knows the monitor by its user, so nothing else has that one.
    assert values(role, "USER") == ["gsaas-monitor" if role == "monitor" else "gsaas"]
    assert values(role, "ENTRYPOINT") == ['["tini", "--", "gsaas-start"]']
    assert 'org.opencontainers.image.licenses="Apache-2.0"' in values(role, "LABEL")[0]


def test_images_begin_alike_so_that_they_share_the_layers_until_pip_installs():
    def beginning(role: str) -> list[str]:
        lines = [
            each["content"] for each in read(role).structure if each["instruction"] != "COMMENT"
        ]
        return lines[: next(i for i, line in enumerate(lines) if "/opt/pip/bin/pip" in line)]

    shared = [line for line in beginning("client") if not line.startswith("ARG EXTRAS")]
    for role in ROLES:
        assert [line for line in beginning(role) if not line.startswith("ARG EXTRAS")] == shared


@pytest.mark.parametrize("role", SERVICES)
def test_an_image_installs_the_extra_of_its_role_and_nothing_of_other_roles(role):
    (extras,) = [
        each["value"].partition("=")[2]
        for each in read(role).structure
        if each["instruction"] == "ARG" and each["value"].startswith("EXTRAS=")
    ]
    assert set(extras.split(",")) - {"mysql"} == {role}
    assert ("mysql" in extras) == (role in ("api", "engine"))


@pytest.mark.parametrize("role", ROLES)
def test_what_an_image_copies_exists_and_is_not_ignored(role):
    ignored = (REPOSITORY / ".containerignore").read_text().splitlines()
    kept = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    for value in values(role, "COPY"):
        words = [word for word in value.split() if not word.startswith("--")]
        if "--from=" in value:
            continue
        for source in words[:-1]:
            assert (REPOSITORY / source).is_file(), source
            assert any(source == name or source.startswith(f"{name}/") for name in kept), source


@pytest.mark.parametrize("path", sorted((REPOSITORY / "images").rglob("*")), ids=str)
def test_no_file_of_the_images_has_a_secret(path):
    if path.is_file() and path.suffix != ".pyc":
        assert not SECRET.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", SERVICES)
def test_a_container_has_the_capabilities_of_the_unit_without_one(role):
    native = unit_capabilities(REPOSITORY / f"etc/gsaas/systemd/gsaas-{role}.service")
    options = quadlet.run_options(role)
    assert {word.removeprefix("--cap-add=") for word in options if "cap-add" in word} == native
    assert {"--cap-drop=all", "--security-opt=no-new-privileges", "--network=host"} <= set(options)
    names = {capability.removeprefix("CAP_").lower() for capability in native}
    kept = re.search(r'GSAAS_CAPABILITIES=("[^"]*"|\S+)', values(role, "ENV")[0])
    assert set(kept[1].strip('"').split() if kept else ()) == names


@pytest.mark.parametrize("role", SERVICES)
def test_the_command_of_the_guide_gives_what_the_unit_gives(role):
    assert sorted(quadlet.documented(GUIDE)[role]) == sorted(
        [f"--name=gsaas-{role}", *quadlet.run_options(role)]
    )


@pytest.mark.skipif(not GENERATOR.exists(), reason="this podman has no generator of units")
def test_podman_makes_units_for_systemd_of_the_shipped_ones():
    done = subprocess.run(
        [GENERATOR, "-dryrun"],
        env={"QUADLET_UNIT_DIRS": str(quadlet.FOLDER)},
        capture_output=True,
        text=True,
        check=True,
    )
    commands = [line for line in done.stdout.splitlines() if line.startswith("ExecStart=")]
    assert len(commands) == len(SERVICES)
    assert "unsupported" not in done.stderr.lower()


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("role", ROLES)
def test_the_shell_of_a_containerfile_is_sound(role):
    for each in read(role).structure:
        if each["instruction"] != "RUN":
            continue
        script = re.sub(r"^(--mount=\S+\s+)+", "", each["value"])
        done = subprocess.run(
            ["shellcheck", "--shell=sh", "-"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not done.stdout
