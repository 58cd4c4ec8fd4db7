# SPDX-License-Identifier: Apache-2.0
"""The sample configuration, generated once for all tests that read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ETC = Path(__file__).parents[3] / "etc/gsaas"


def generate(program: str, config: str, output: Path) -> None:
    subprocess.run(
        [
            Path(sys.executable).with_name(program),
            f"--config-file={ETC / config}",
            f"--output-file={output}",
        ],
        check=True,
    )


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("etc") / "gsaas.conf"
    generate("oslo-config-generator", "gsaas-config-generator.conf", path)
    return path
