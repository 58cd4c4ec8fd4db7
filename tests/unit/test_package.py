# SPDX-License-Identifier: Apache-2.0
"""./dev package: what it builds, read from the archives.

`build` makes each wheel from the sdist, so that one has all files, too.
"""

from __future__ import annotations

import email
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from generate import files

REPOSITORY = Path(__file__).resolve().parents[2]
VERSION = "1.0.0"
SERVER, CLIENT, DASHBOARD, HEAT, SCRIPT, TEMPEST = (
    f"{name}-{VERSION}-py3-none-any.whl"
    for name in (
        *("gsaas", "python_gsaasclient", "gsaas_dashboard", "gsaas_heat"),
        *("gsaas_launcher", "gsaas_tempest_plugin"),
    )
)
SDISTS = {
    f"{name}-{VERSION}.tar.gz"
    for name in (
        *("gsaas", "gsaas_dashboard", "gsaas_heat", "gsaas_launcher"),
        *("gsaas_tempest_plugin", "python_gsaasclient"),
    )
}
SHARE = f"gsaas-{VERSION}.data/data/share/gsaas/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with everything that ./dev package builds."""
    folder = tmp_path_factory.mktemp("dist")
    found = subprocess.run(
        [REPOSITORY / "dev", "package", "--output", folder],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"},
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert found.stdout.count("PASSED") == len(list(folder.iterdir()))
    return folder


@pytest.fixture(scope="module")
def program(built: Path) -> Path:
    """The launcher's wheel for machines like this one."""
    (found,) = (path for path in built.glob("gsaas_launcher-*.whl") if path.name != SCRIPT)
    return found


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def metadata(wheel: Path) -> Message:
    (name,) = (name for name in names(wheel) if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(name))


def tracked(*folders: str) -> set[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "--cached", "--others"]
    found = subprocess.run(
        [*command, "--exclude-standard", *folders],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in found.stdout.splitlines() if (REPOSITORY / name).is_file()}


def test_there_are_sdists_and_wheels_of_all_six(built: Path, program: Path) -> None:
    wheels = {SERVER, CLIENT, DASHBOARD, HEAT, SCRIPT, TEMPEST, program.name}
    assert {path.name for path in built.iterdir()} == wheels | SDISTS
    assert re.fullmatch(r"gsaas_launcher-[\d.]+-py3-none-linux_\w+\.whl", program.name)


def test_the_wheel_of_the_server_has_every_file_of_the_package_and_no_other_package(
    built: Path,
) -> None:
    packaged = {name for name in names(built / SERVER) if not name.startswith("gsaas-")}
    assert packaged == tracked("gsaas")


def test_the_wheel_of_the_client_has_every_file_of_its_package_and_no_other_package(
    built: Path,
) -> None:
    packaged = {
        name for name in names(built / CLIENT) if not name.startswith("python_gsaasclient-")
    }
    assert {f"client/{name}" for name in packaged} == tracked("client/gsaasclient")


def test_the_wheel_of_the_tests_has_every_file_of_its_package_and_no_other_package(
    built: Path,
) -> None:
    packaged = {name for name in names(built / TEMPEST) if ".dist-info/" not in name}
    assert {f"tempest/{name}" for name in packaged} == tracked("tempest/gsaas_tempest_plugin")


def test_the_wheel_of_the_dashboard_has_every_file_of_its_package_and_no_other_package(
    built: Path,
) -> None:
    packaged = {name for name in names(built / DASHBOARD) if ".dist-info/" not in name}
    assert {f"dashboard/{name}" for name in packaged} == tracked("dashboard/gsaas_dashboard")


def test_the_wheel_of_heats_plugin_has_every_file_of_its_package_and_no_other_package(
    built: Path,
) -> None:
    packaged = {name for name in names(built / HEAT) if ".dist-info/" not in name}
    assert {f"heat/{name}" for name in packaged} == tracked("heat/gsaas_heat")


def test_tempest_finds_the_tests_in_the_wheel_where_they_are(built: Path) -> None:
    with zipfile.ZipFile(built / TEMPEST) as archive:
        (name,) = (
            name for name in archive.namelist() if name.endswith("dist-info/entry_points.txt")
        )
        text = archive.read(name).decode()
    assert [line for line in text.splitlines() if line] == [
        "[tempest.test_plugins]",
        "gsaas = gsaas_tempest_plugin.plugin:GsaasTempestPlugin",
    ]


def test_the_wheel_of_the_server_brings_what_operators_install(built: Path) -> None:
    """Units, samples, alerts, dashboard, plug-in of DevStack, documents: in the folders of the repository."""
    brought = {name.removeprefix(SHARE) for name in names(built / SERVER) if SHARE in name}
    generated = {"etc/gsaas/gsaas.conf.sample", "etc/gsaas/policy.yaml.sample"}
    documents = {name for name in tracked("doc") if name.endswith((".md", ".rst", ".json"))}
    assert {*tracked("etc", "devstack"), *documents, *generated} <= brought
    assert {"LICENSE", "README.md", "CONTRIBUTING.md"} <= brought


def test_no_document_of_the_wheel_links_to_a_file_that_it_lacks(built: Path) -> None:
    with zipfile.ZipFile(built / SERVER) as archive:
        texts = {
            name.removeprefix(SHARE): archive.read(name).decode()
            for name in archive.namelist()
            if re.fullmatch(rf"{SHARE}(README|doc/[\w-]+)\.md", name)
        }
        brought = {name.removeprefix(SHARE) for name in archive.namelist()}
    assert {"README.md", "doc/notifications.md"} <= set(texts)
    for name, text in texts.items():
        targets = re.findall(r"\]\(([^)#\s]+)", text)
        paths = {
            posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            for target in targets
            if "://" not in target
        }
        assert paths <= brought, name


def test_the_samples_are_generated_from_the_code(built: Path) -> None:
    with zipfile.ZipFile(built / SERVER) as archive:
        configuration = archive.read(f"{SHARE}etc/gsaas/gsaas.conf.sample").decode()
        rules = archive.read(f"{SHARE}etc/gsaas/policy.yaml.sample").decode()
    assert "#gpu_device = gpu0" in configuration
    assert "[keystone_authtoken]" in configuration
    assert '#"gsaas:' in rules


def test_the_launcher_is_a_program_here_and_a_script_elsewhere(built: Path, program: Path) -> None:
    for wheel, beginning in ((program, b"\x7fELF"), (built / SCRIPT, b"#!python")):
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/scripts/gsaas"))
            assert archive.read(name).startswith(beginning)
            shared = {
                name.rpartition("/")[2] for name in archive.namelist() if name.endswith(".so")
            }
            assert shared == ({"gsaas-run.so", "gsaas-tls.so"} if wheel == program else set())


def test_every_wheel_names_its_license_and_has_its_text(built: Path) -> None:
    text = (REPOSITORY / "LICENSE").read_bytes()
    for wheel in built.glob("*.whl"):
        said = metadata(wheel)
        assert said["License-Expression"] == "Apache-2.0"
        assert said["License-File"] == "LICENSE"
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (
                name for name in archive.namelist() if name.endswith("dist-info/licenses/LICENSE")
            )
            assert archive.read(name) == text


def test_every_sdist_has_the_text_of_the_license(built: Path) -> None:
    for sdist in SDISTS:
        with tarfile.open(built / sdist) as archive:
            assert f"{sdist.removesuffix('.tar.gz')}/LICENSE" in archive.getnames()


def test_the_wheels_bring_man_pages_and_completion_where_programs_look_for_them(
    built: Path,
) -> None:
    brought = {
        f"{here}{path}"
        for wheel, here in ((SERVER, ""), (CLIENT, "client/"))
        for _, found, path in (name.partition(".data/data/") for name in names(built / wheel))
        if found
    }
    assert {"share/man/man8/gsaas-engine.8", "client/share/man/man1/gsaas.1"} <= brought
    pages = {path for path in files.expected() if not path.startswith("doc/")}
    assert pages <= brought


def test_the_wheel_of_the_service_brings_the_schemas_of_notifications(built: Path) -> None:
    schemas = {path for path in files.expected() if path.startswith("doc/")}
    folder = "share/gsaas/"
    brought = {name.partition(folder)[2] for name in names(built / SERVER) if folder in name}
    assert schemas
    assert schemas <= brought


def test_the_wheel_of_the_client_brings_what_slurm_calls(built: Path) -> None:
    share = "/data/share/gsaas/slurm/"
    brought = {name.partition(share)[2] for name in names(built / CLIENT) if share in name}
    assert {f"client/slurm/{name}" for name in brought} == tracked("client/slurm")
    assert "spank_gsaas.c" in brought


def test_the_sdist_of_the_service_has_the_source_of_its_documentation(built: Path) -> None:
    with tarfile.open(built / f"gsaas-{VERSION}.tar.gz") as archive:
        there = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked("doc", "releasenotes", "etc", "devstack", "gsaas") <= there
    assert {path for path in files.expected() if path.startswith("share/")} <= there


@pytest.mark.parametrize(("folder", "wheel"), [("", SERVER), ("client", CLIENT)])
def test_pip_installs_from_a_clone_in_which_nothing_was_generated(
    folder: str, wheel: str, tmp_path: Path
) -> None:
    for name in tracked(folder or "."):
        copy = tmp_path / "clone" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, copy)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", tmp_path, tmp_path / "clone" / folder],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(name.endswith("/METADATA") for name in names(tmp_path / wheel))
    assert not [name for name in names(tmp_path / wheel) if "/share/man/" in name]


def test_no_distribution_is_kept_in_the_repository() -> None:
    """It would be that of an older tree: ./dev package builds them."""
    assert not tracked("*.whl", "*.tar.gz")


def test_no_file_of_a_wheel_is_younger_than_source_date_epoch(built: Path) -> None:
    """It is the time of the last commit, so that the same tree gives the same wheel."""
    command = ["git", "-c", "safe.directory=*", "log", "-1", "--format=%ct"]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    latest = time.gmtime(int(found.stdout))[:6]
    for wheel in built.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            assert all(entry.date_time <= latest for entry in archive.infolist())
