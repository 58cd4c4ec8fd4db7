# SPDX-License-Identifier: Apache-2.0
"""The releases of libraries that the distributions admit, that OpenStack constrains, and that are installed here."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import constraints

UPPER_CONSTRAINTS = sorted(constraints.UPPER_CONSTRAINTS.glob("upper-constraints-*.txt"))
IN_FORCE = Path(os.environ.get("GSAAS_CONSTRAINTS", constraints.REPOSITORY / "constraints.txt"))
"""The constraints that ./dev installed this environment with."""
UNCONSTRAINED = {
    *("gsaas-launcher", "python-gsaasclient"),
    # Certificates, whose newest release is the right one.
    "certifi",
    # Only GPU hosts, gsaas-standalone, gsaas-sim and clouds on PostgreSQL need these.
    *("apache-tvm", "nvidia-ml-py", "psycopg", "pyarrow"),
}
"""What OpenStack does not constrain."""

by_release = pytest.mark.parametrize(
    "path", UPPER_CONSTRAINTS, ids=[path.stem.rpartition("-")[2] for path in UPPER_CONSTRAINTS]
)


def test_there_are_constraints_of_three_releases() -> None:
    assert len(UPPER_CONSTRAINTS) == 3


@by_release
def test_openstack_constrains_to_releases_that_are_admitted(path: Path) -> None:
    assert not constraints.contradictions(constraints.required(), constraints.read(path))


@by_release
def test_what_openstack_does_not_constrain_is_known(path: Path) -> None:
    names = {canonicalize_name(requirement.name) for requirement in constraints.required()}
    assert names - constraints.read(path).keys() == UNCONSTRAINED


@by_release
def test_what_everybody_needs_is_constrained(path: Path) -> None:
    """What OpenStack does not constrain is required by extras of some processes only."""
    requires = metadata.requires("gsaas") or []
    always = [Requirement(line) for line in requires if "extra ==" not in line]
    assert always
    assert {canonicalize_name(one.name) for one in always} <= constraints.read(path).keys()


def test_a_pin_that_contradicts_the_constraints_is_found() -> None:
    pinned = [Requirement("pyroute2==0.9.7"), Requirement("oslo.config>=9.6")]
    found = constraints.contradictions(pinned, {"pyroute2": "0.8.1", "oslo-config": "10.3.0"})
    assert found == ["pyroute2==0.9.7 is required, and 0.8.1 is constrained"]


def test_a_marker_chooses_the_constraint_of_this_python(tmp_path: Path) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text(
        "# of a release\n"
        "WebOb===1.8.9\n"
        "openstacksdk===4.5.0;python_version<'3.10'\n"
        "openstacksdk===4.7.2;python_version>='3.10'\n"
    )
    assert constraints.read(file) == {"webob": "1.8.9", "openstacksdk": "4.7.2"}


def test_this_environment_has_the_releases_of_its_constraints() -> None:
    constrained = constraints.read(IN_FORCE)
    installed = {canonicalize_name(found.name): found.version for found in metadata.distributions()}
    wrong = {
        name: (version, constrained[name])
        for name, version in installed.items()
        if constrained.get(name, version) != version
    }
    assert not wrong
    assert "pyroute2" in installed.keys() & constrained.keys()


def test_programs_that_tests_start_have_the_pyroute2_of_the_constraints() -> None:
    program = "import pyroute2; print(pyroute2.__version__)"
    command = [sys.executable, "-c", program]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert loaded == constraints.read(IN_FORCE)["pyroute2"]
