# SPDX-License-Identifier: Apache-2.0
"""podman with a storage and a configuration of its own, and images built in it on a Debian that mmdebstrap makes.

No registry is asked: the base consists of packages of this machine's own release, from the mirrors that apt uses here.
It and the layers of the images are kept in /var/tmp/gsaas-images, so that only the first run takes minutes. Containers
are removed when the tests end, however they end.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from images.build import ROLES, build
from tests.images import containers

STORAGE = Path("/var/tmp/gsaas-images")  # noqa: S108 (root's own, and kept between runs)
BUILT = ROLES if os.environ.get("GSAAS_TEST_IMAGES") == "all" else ("api", "client")
"""The others differ from these in a few lines of the Containerfile, and `./dev test images` builds them, too."""
APT_SOURCES = [
    Path("/etc/apt/sources.list"),
    *sorted(Path("/etc/apt/sources.list.d").glob("*.sources")),
]
HYBRID = Path("/sys/fs/cgroup/unified")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/images" in item.nodeid:
            item.add_marker(pytest.mark.images)
            item.add_marker(pytest.mark.timeout(3000))  # the first one builds


@pytest.fixture(scope="session")
def podman() -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Return a function that runs podman; images and containers of this machine are not touched."""
    STORAGE.mkdir(parents=True, exist_ok=True)
    storage, settings = STORAGE / "storage.conf", STORAGE / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{STORAGE}/storage"\nrunroot = "{STORAGE}/run"\n'
    )
    # Unless it is told limits, podman raises them, which takes CAP_SYS_RESOURCE. crun refuses machines that have
    # control groups of both versions.
    runtime = 'runtime = "runc"\n' if HYBRID.exists() else ""
    settings.write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        f'[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n{runtime}'
    )
    before = dict(os.environ)
    os.environ["CONTAINERS_STORAGE_CONF"] = str(storage)
    os.environ["CONTAINERS_CONF"] = str(settings)

    with containers.ending_with_us() as label:

        def run(*words: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
            command = containers.command(label, [str(word) for word in words])
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0 or not check, done.stdout + done.stderr
            return done

        yield run
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def base(podman) -> str:
    """Return the name of an image with the minimal Debian or Ubuntu of this machine's release."""
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    codename = release["VERSION_CODENAME"]
    name = f"localhost/gsaas-base:{codename}"
    if podman("image", "exists", name, check=False).returncode:
        tarball = STORAGE / "base.tar"
        sources = [source for source in APT_SOURCES if source.exists() and source.stat().st_size]
        without = [
            f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "locale")
        ]
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", *without, codename, tarball, *sources],
            check=True,
        )
        podman("import", tarball, name)
        tarball.unlink()
    return name


@pytest.fixture(scope="session")
def image(podman, base) -> Callable[[str], str]:
    """Return a function that builds the image of a role, unless it is built already, and returns its name."""
    built: set[str] = set()

    def of(role: str) -> str:
        if role not in BUILT:
            pytest.skip("./dev test images builds this image")
        if role not in built:
            build([role], base)
            built.add(role)
        return f"localhost/gsaas-{role}"

    return of


@pytest.fixture
def namespace() -> Iterator[str]:
    """Return the name of a network namespace with a loopback interface and one to the GPU network, gpu0."""
    name = f"images-{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in ("link set lo up", "link add gpu0 type bridge", "link set gpu0 up"):
            subprocess.run(["ip", "-n", name, *command.split()], check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
