# SPDX-License-Identifier: Apache-2.0
"""What a check-up says of the configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest

import gsaas.conf
from gsaas.checkup import configuration, parts
from gsaas.checkup.findings import Level


def found(path: Path, text: str):
    path.write_text(text)
    return list(configuration.check(gsaas.conf.load(files=[str(path)])))


def test_without_a_file_there_is_nothing_to_check():
    (finding,) = configuration.check(gsaas.conf.load(files=[]))
    assert finding.level is Level.WARN
    assert "/etc/gsaas/gsaas.conf" in finding.said
    assert "--config-file" in finding.todo


def test_a_file_whose_options_are_all_known_is_named(tmp_path: Path):
    path = tmp_path / "gsaas.conf"
    (finding,) = found(path, "[gpgpums]\npolicy = best-fit\nallowed_policies = *\n")
    assert (finding.level, finding.todo) == (Level.OK, None)
    assert str(path) in finding.said


def test_an_unknown_option_is_a_warning_with_its_line(tmp_path: Path):
    path = tmp_path / "gsaas.conf"
    (finding,) = found(path, "[gpgpums]\n\npolicey = best-fit\n")
    assert finding.level is Level.WARN
    assert finding.said.startswith(f"{path}:3: no process reads [gpgpums]policey")


@pytest.mark.parametrize(
    ("section", "option", "value", "allowed"),
    [
        ("gpgpums", "policy", "best", "best-fit"),
        ("gpgpums", "allowed_policies", "best-fit, best", "least-load-fit"),
        ("remoting", "driver", "cuda", "lupine"),
        ("remoting", "cpu_driver", "cuda", "ggml"),
    ],
)
def test_a_name_of_what_is_not_installed_is_a_failure_with_those_that_are(
    tmp_path: Path, section, option, value, allowed
):
    path = tmp_path / "gsaas.conf"
    (finding,) = found(path, f"[{section}]\n{option} = {value}\n")
    assert finding.level is Level.FAIL
    wrong = value.rpartition(" ")[2]
    assert finding.said == (f"{path}:2: [{section}]{option} names {wrong}, which is not installed")
    assert allowed in finding.todo


def test_the_configuration_is_checked_first():
    """What is wrong there explains most of what follows."""
    first = next(parts.check_all(gsaas.conf.load(files=[])))
    assert first.part == configuration.PART
