# SPDX-License-Identifier: Apache-2.0
"""The tenant's guide says truly what each client calls what a request can say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gsaas.api.schemas import cgpus as schemas
from gsaas.api.schemas import leases as lease_schemas
from gsaas.objects import plain_server
from gsaasclient.cli.cgpus import FIELDS, OPTIONS
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.commands.options import CGPUS
from gsaasclient.cli.slurm.jobs import OPTIONS as SLURM
from gsaasclient.osc.leases import CreateLease

DOC = Path(__file__).parents[3] / "doc"
LAUNCH = {name: option for option in COMMANDS["launch"].options for name in option.names}


def rows() -> list[list[list[str]]]:
    """The words in each cell of each row of the table, without its first column."""
    text = (DOC / "tenant-guide.md").read_text(encoding="utf-8")
    section = text.partition("## The same thing in other words")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [
        [re.findall("`(.*?)`", cell) for cell in line.strip("|").split("|")[1:]] for line in lines
    ]


def openstack_words() -> set[str]:
    parser = CreateLease(None, None).get_parser("openstack gpu lease create")
    return {
        word
        for action in parser._actions
        for word in (action.option_strings or [str(action.metavar)])
    }


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][0])
def test_each_word_is_one_of_its_client(row: list[list[str]]) -> None:
    ours, openstack, api, heat, slurm, properties = row
    assert {word.removeprefix("-") for word in ours} <= LAUNCH.keys()
    assert len({LAUNCH[word.removeprefix("-")].name for word in ours}) == 1
    assert set(openstack) <= openstack_words()
    request = lease_schemas.CREATE["properties"]["lease"]["properties"]
    known = {f"cgpus.{field}" for field in schemas.REQUEST["properties"]} | request.keys()
    assert set(api) <= known
    described = (DOC / "heat.md").read_text(encoding="utf-8")
    assert all(f"`{word}`" in described for word in heat)
    assert set(slurm) <= {option for _, option, _ in SLURM.values()}
    assert set(properties) <= plain_server.FIELDS.keys()


@pytest.mark.parametrize("option", [option.name for option in CGPUS])
def test_the_words_for_cgpus_mean_the_same(option: str) -> None:
    (row,) = [row for row in rows() if f"-{option}" in row[0]]
    (field,) = row[2]
    name = field.removeprefix("cgpus.")
    assert row[0][0] == OPTIONS.get(name, f"-{option}")
    assert FIELDS.get(option, name) == name
    assert row[3] == [name]
    assert row[4] == ([SLURM[option][1]] if option in SLURM else [])
    assert [plain_server.FIELDS[word] for word in row[5]] == [name]
