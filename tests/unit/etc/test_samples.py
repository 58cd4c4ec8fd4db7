# SPDX-License-Identifier: Apache-2.0
"""The generated samples parse, and explain every option and rule that GSaaS has.

The generators run in processes of their own: they load whatever offers options, eventlet and all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from oslo_config import cfg

from gsaas import conf
from gsaas.api import rbac
from tests.unit.etc.conftest import ETC, generate

OPTIONS = {
    (group.name, option.dest): option
    for module in conf.MODULES
    for group, options in module.list_opts().items()
    for option in options
}


def comments_by_option(sample: Path) -> dict[tuple[str, str], str]:
    """Return (section, option) -> the comment above it in *sample*, without spaces.

    Long lines are also broken inside words, at hyphens, so only the letters can be compared.
    """
    found, section, comment = {}, "", []
    for line in sample.read_text().splitlines():
        if match := re.fullmatch(r"\[(.+)\]", line):
            section, comment = match[1], []
        elif match := re.match(r"#(\w+) =", line):
            found[section, match[1]] = "".join(comment)
            comment = []
        elif line.startswith("# "):
            comment.append("".join(line[2:].split()))
    return found


def values(settings: cfg.ConfigOpts) -> dict[tuple[str, str], object]:
    """Return the value of every option of GSaaS, by group and name."""
    return {
        (group, name): settings[name] if group == "DEFAULT" else settings[group][name]
        for group, name in OPTIONS
    }


def test_the_sample_changes_no_default(sample: Path):
    written, default = conf.load(["--config-file", str(sample)]), conf.load([], files=[])
    assert values(written) == values(default)


def test_every_default_that_the_sample_shows_can_be_written_as_shown(sample: Path):
    names = "|".join(name for _, name in OPTIONS)
    text = re.sub(rf"^#({names}) = (?!<None>)", r"\1 = ", sample.read_text(), flags=re.MULTILINE)
    sample.with_name("all.conf").write_text(text)
    shown = conf.load(["--config-file", str(sample.with_name("all.conf"))])
    default = conf.load([], files=[])
    assert values(shown) == values(default)


def test_the_sample_explains_each_option_with_its_help(sample: Path):
    comments = comments_by_option(sample)
    for key, option in OPTIONS.items():
        assert "".join(option.help.split()) in comments[key], key


def test_the_sample_shows_how_to_reach_the_database_and_the_message_bus(sample: Path):
    assert {("database", "connection"), ("DEFAULT", "transport_url")} <= comments_by_option(
        sample
    ).keys()


def test_every_option_that_is_registered_is_in_the_sample():
    registry = cfg.ConfigOpts()
    for module in conf.MODULES:
        module.register_opts(registry)
    registry([], default_config_files=[])
    groups = {group for group, _ in OPTIONS} - {"DEFAULT"}
    registered = {(group, name) for group in groups for name in registry[group]}
    assert registered == {key for key in OPTIONS if key[0] in groups}


@pytest.mark.parametrize("key", OPTIONS, ids=".".join)
def test_every_option_says_what_it_is_for(key: tuple[str, str]):
    assert len((OPTIONS[key].help or "").split()) > 5


@pytest.mark.slow
def test_the_sample_of_access_rules_shows_every_rule(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    generate("oslopolicy-sample-generator", "gsaas-policy-generator.conf", path)
    text = re.sub(r'^#(?=")', "", path.read_text(), flags=re.MULTILINE)
    assert yaml.safe_load(text) == {rule.name: rule.check_str for rule in rbac.list_rules()}


@pytest.mark.slow
def test_oslo_configs_validator_accepts_every_option_of_the_sample_and_refuses_others(sample: Path):
    names = "|".join(name for _, name in OPTIONS)
    text = re.sub(rf"^#({names}) = (?!<None>)", r"\1 = ", sample.read_text(), flags=re.MULTILINE)
    everything = sample.with_name("validated.conf")
    everything.write_text(text)
    assert validate(everything).returncode == 0
    everything.write_text(f"{text}\n[api]\ncolour = blue\n")
    refused = validate(everything)
    assert refused.returncode == 1
    assert "colour" in refused.stderr


def validate(settings: Path) -> subprocess.CompletedProcess[str]:
    """Run the validator as the operator's guide says."""
    program = Path(sys.executable).with_name("oslo-config-validator")
    return subprocess.run(
        [
            *(program, "--config-file", ETC / "gsaas-config-generator.conf"),
            *("--input-file", settings),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
