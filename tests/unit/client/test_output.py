# SPDX-License-Identifier: Apache-2.0
"""The formats and columns in which commands print resources."""

from __future__ import annotations

import csv
import io
import json
from types import SimpleNamespace

import pytest
import yaml

from gsaasclient import spreadsheets
from gsaasclient.cli.columns import Column, select
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.commands.options import FORMATS
from gsaasclient.cli.output import print_list, print_resource
from gsaasclient.cli.parser import UsageError

COLUMNS = (
    Column("name", "host"),
    Column("memory_mb", "MiB", text=lambda host: f"{host['memory_mb']} MiB"),
    Column("model"),
    Column("silent"),
    Column("problems", optional=True),
)
HOSTS = [
    {"name": "名前, a", "memory_mb": 8192, "model": None, "silent": True, "problems": ["it's 漢"]},
    {"name": 'b "2"\n', "memory_mb": 0.5, "model": "A100", "silent": False, "problems": []},
]
DOCUMENT = {"hosts": HOSTS, "totals": {"hosts": 2}}


@pytest.fixture
def printed(capsys):
    """Return what a list of the hosts prints."""

    def run(format: str, *names: str) -> str:
        args = SimpleNamespace(f=format, c=list(names))
        print_list(args, select(COLUMNS, args.c), HOSTS, DOCUMENT)
        return capsys.readouterr().out

    return run


@pytest.fixture
def printed_resource(capsys):
    """Return what the first host prints, shown alone."""

    def run(format: str, *names: str) -> str:
        args = SimpleNamespace(f=format, c=list(names))
        print_resource(args, select(COLUMNS, args.c), HOSTS[0], HOSTS[0], lambda: "its own text")
        return capsys.readouterr().out

    return run


FORMULAS = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\ra\r=1",
    "\0=1",
    "\uff1d1",
    "\uff0b1",
    "\uff0d1",
    "\uff20A1",
)


@pytest.mark.parametrize("name", FORMULAS)
def test_no_text_of_a_tenant_is_a_formula_of_a_spreadsheet_and_numbers_stay_numbers(capsys, name):
    args = SimpleNamespace(f="csv", c=[])
    columns = (Column("name"), Column("limit"))
    print_list(args, columns, [{"name": name, "limit": -1}], {})
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline=""))) == [
        ["name", "limit"],
        [f"'{name}", "-1"],
    ]
    assert spreadsheets.text(f"'{name}") == name


@pytest.mark.parametrize("name", ["", "'", "'quoted'", "a=b", "1-1", "é", " x"])
def test_another_text_is_printed_as_it_is(name):
    assert spreadsheets.cell(name) == name == spreadsheets.text(name)


def test_csv_is_read_back_by_csv(printed):
    rows = list(csv.DictReader(io.StringIO(printed("csv"), newline="")))
    assert rows == [
        {"name": "名前, a", "memory_mb": "8192", "model": "", "silent": "true"},
        {"name": 'b "2"\n', "memory_mb": "0.5", "model": "A100", "silent": "false"},
    ]


def test_yaml_and_json_are_the_apis_document(printed):
    assert yaml.safe_load(printed("yaml")) == DOCUMENT
    assert json.loads(printed("json")) == DOCUMENT


def test_yaml_and_json_of_picked_columns_are_rows_of_them(printed):
    picked = [{key: host[key] for key in ("problems", "name")} for host in HOSTS]
    assert yaml.safe_load(printed("yaml", "problems", "name")) == picked
    assert json.loads(printed("json", "problems", "name")) == picked


def test_values_have_no_heading_and_one_line_for_each_row(printed):
    assert printed("value", "memory_mb", "silent") == "8192 true\n0.5 false\n"
    assert printed("value", "name").count("\n") == 2


def test_values_of_one_resource_are_lines(printed_resource):
    assert printed_resource("value", "memory_mb", "model", "silent") == "8192\n\ntrue\n"


def test_a_table_shows_text_instead_of_values(printed):
    assert printed("table").splitlines() == [
        "  host     MiB       model  silent",
        "  名前, a  8192 MiB  -      yes",
        '  b "2"�   0.5 MiB   A100   no',
    ]


def test_columns_are_picked_by_name_or_heading_and_printed_in_the_order_asked_for(printed):
    assert printed("csv", "silent", "NAME").splitlines()[0] == "silent,name"
    assert printed("table", "mib", "host").splitlines()[0].split() == ["MiB", "host"]
    assert printed("csv", "problems").splitlines()[0] == "problems"


def test_one_resource_has_its_own_text_unless_columns_are_picked(printed_resource):
    assert printed_resource("table") == "its own text\n"
    assert printed_resource("table", "memory_mb", "name") == "  MiB   8192 MiB\n  host  名前, a\n"


def test_an_unknown_column_is_refused_and_the_known_ones_are_named():
    with pytest.raises(UsageError) as caught:
        select(COLUMNS, ["nmae"])
    assert str(caught.value) == (
        "there is no column nmae; the columns are name, memory_mb, model, silent, problems"
    )


# The others run a command, print one sentence, or print several tables.
@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"exec", "run", "redeem", "slurm", "top"}))
def test_every_command_that_lists_or_shows_offers_all_formats_and_columns(name):
    options = {option.name: option for option in COMMANDS[name].options}
    assert [options["f"].parse_value(format) for format in FORMATS] == list(FORMATS)
    assert options["c"].repeatable
