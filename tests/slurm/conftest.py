# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kernel.standalone.cloud import Cloud
from tests.slurm import cluster
from tests.slurm.site import CONFIGURATION, CPU_HOST, INVENTORY, SOURCES, Site


@pytest.fixture(scope="session")
def plugin(tmp_path_factory) -> Path:
    """The plug-in, built as the documentation says."""
    built = tmp_path_factory.mktemp("spank") / "gsaas.so"
    flags = ["-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, "-o", built, SOURCES / "spank_gsaas.c"], check=True)
    built.parent.chmod(0o755)
    return built


@pytest.fixture(scope="package")
def whole_site(tmp_path_factory, plugin) -> Iterator[Site]:
    """A running gsaas-standalone, and a running Slurm whose jobs get cGPUs from it."""
    reason = cluster.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("standalone")
    inventory = folder / "inventory.toml"
    inventory.write_text(INVENTORY.read_text() + CPU_HOST)
    cloud = Cloud(folder)
    with cloud.config.open("a") as file:
        file.write(CONFIGURATION.format(inventory=inventory))
    try:
        cloud.start()
        site = Site(cloud, f"test{os.getpid()}", plugin)
        try:
            site.start()
            yield site
        finally:
            site.remove()
    finally:
        cloud.remove()


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """The running site. A test may kill what it wants; afterwards all of it runs again, and nothing is claimed."""
    yield whole_site
    whole_site.restore()
    whole_site.check_nothing_is_leaked()
