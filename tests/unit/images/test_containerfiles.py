# SPDX-License-Identifier: Apache-2.0
"""The Containerfile and the units of the images, read by parsers of others, and compared with the guide."""

from __future__ import annotations

import configparser
import io
import re
import subprocess
from pathlib import Path

import pytest
from dockerfile_parse import DockerfileParser

from images.build import REPOSITORY, ROLES
from tests.support import quadlet

SERVICES = [role for role in ROLES if role != "client"]
GUIDE = (REPOSITORY / "doc" / "containers.md").read_text(encoding="utf-8")
GENERATOR = Path("/usr/libexec/podman/quadlet")
FILES = sorted(
    path
    for path in (REPOSITORY / "images").rglob("*")
    if path.is_file() and path.parent.name != "__pycache__"
)
SECRET = re.compile(r"password|passwd|token=|BEGIN .*KEY|https?://[^/\s]+@", re.IGNORECASE)


def read() -> DockerfileParser:
    content = (REPOSITORY / "images" / "Containerfile").read_bytes()
    return DockerfileParser(fileobj=io.BytesIO(content))


def stages() -> dict[str, list[dict[str, str]]]:
    """Return the instructions of each stage, by its name; the last one has that of the argument for the role."""
    found: dict[str, list[dict[str, str]]] = {"": []}
    for each in read().structure:
        if each["instruction"] == "FROM":
            found[each["value"].rpartition(" AS ")[2]] = []
        list(found.values())[-1].append(each)
    return found


def values(role: str, instruction: str) -> list[str]:
    """Return the values of an instruction in the image of *role*, with what is in all images first."""
    image = [
        *stages()["base"],
        *stages()[role],
        *stages()["${ROLE}"],
    ]
    return [
        each["value"].replace("${ROLE}", role)
        for each in image
        if each["instruction"] == instruction
    ]


def unit_capabilities(path: Path) -> set[str]:
    parser = configparser.RawConfigParser(strict=False)
    parser.read(path)
    return set(parser.get("Service", "AmbientCapabilities", fallback="").split())


@pytest.mark.parametrize("role", ROLES)
def test_an_image_is_its_environment_of_python_on_the_base_and_runs_as_a_user(role):
    assert read().parent_images[0] == "docker.io/library/debian:13-slim"
    assert stages()[role][0]["value"] == f"base AS {role}"
    assert list(stages())[-1] == "${ROLE}"
    assert "--from=build /opt/gsaas /opt/gsaas" in values(role, "COPY")
    # polkit knows the monitor by its user, so nothing else has that one.
    assert values(role, "USER") == ["gsaas-monitor" if role == "monitor" else "gsaas"]
    assert values(role, "ENTRYPOINT") == ['["tini", "--", "gsaas-start"]']
    labels = " ".join(values(role, "LABEL"))
    assert 'org.opencontainers.image.licenses="Apache-2.0"' in labels
    assert f'org.opencontainers.image.title="gsaas-{role}"' in labels
    assert labels.count("image.description=") == 1


def test_the_role_is_no_argument_before_pip_installs_so_that_images_share_the_layers_until_then():
    arguments = [each["content"].strip() for each in stages()["build"]]
    installs = next(i for i, line in enumerate(arguments) if "/opt/pip/bin/pip" in line)
    assert arguments.index("ARG ROLE") > max(
        i for i, line in enumerate(arguments[:installs]) if line.startswith(("RUN", "COPY"))
    )


def installed(role: str, extras: str = "") -> list[str]:
    """Return what pip is told to install in the image of *role*: the shell of the Containerfile runs, without pip."""
    (script,) = [
        re.sub(r"^(--mount=\S+\s+)+", "", each["value"])
        for each in stages()["build"]
        if "/opt/pip/bin/pip" in each["value"]
    ]
    done = subprocess.run(
        ["sh", "-euc", script.replace("/opt/pip/bin/pip", "echo")],
        env={"ROLE": role, "EXTRAS": extras},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.partition("--find-links /wheels ")[2].split()


@pytest.mark.parametrize("role", SERVICES)
def test_an_image_installs_the_extra_of_its_role_and_nothing_of_other_roles(role):
    (wheel,) = installed(role)
    extras = wheel.removeprefix("/wheels/gsaas-[0-9]*.whl").strip("[]")
    assert set(extras.split(",")) - {"mysql"} == {role}
    assert ("mysql" in extras) == (role in ("api", "engine"))


def test_another_driver_of_databases_can_be_chosen():
    assert installed("api", "api,postgresql") == ["/wheels/gsaas-[0-9]*.whl[api,postgresql]"]


def test_the_image_of_the_client_has_the_client_and_the_launcher_in_c():
    assert installed("client") == [
        "/wheels/python_gsaasclient-*.whl",
        "/wheels/gsaas_launcher-*linux*.whl",
    ]


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


@pytest.mark.parametrize("path", FILES, ids=str)
def test_no_file_of_the_images_has_a_secret(path):
    assert not SECRET.search(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("role", SERVICES)
def test_a_container_has_the_capabilities_of_the_unit_without_one(role):
    native = unit_capabilities(REPOSITORY / f"etc/gsaas/systemd/gsaas-{role}.service")
    options = quadlet.run_options(role)
    assert {word.removeprefix("--cap-add=") for word in options if "cap-add" in word} == native
    confined = {"--cap-drop=all", "--security-opt=no-new-privileges", "--read-only"}
    assert confined | {"--network=host"} <= set(options)
    names = {capability.removeprefix("CAP_").lower() for capability in native}
    kept = re.search(r'GSAAS_CAPABILITIES=("[^"]*"|\S+)', " ".join(values(role, "ENV")))
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


def test_the_shell_of_the_containerfile_is_sound():
    for each in read().structure:
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
