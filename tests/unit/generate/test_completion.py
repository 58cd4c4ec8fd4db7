# SPDX-License-Identifier: Apache-2.0
"""What bash, zsh and fish offer for the programs, from the generated files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from generate import files
from gsaas.gpgpums import policies
from gsaas.objects.lifecycle import Status
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.commands.options import FORMATS
from tests.unit.generate import shells

pytestmark = pytest.mark.slow

SHELLS = (shells.bash, shells.zsh, shells.fish)
Shell = Callable[[str, Path], set[str]]

POLICIES = policies.names()
OFFERS = {
    "gsaas l": {"launch", "limits", "list"},
    "gsaas -": {"-l", "-t", "--help", "--version"},
    "gsaas help ": {*COMMANDS},
    "gsaas list -f ": {*FORMATS},
    "gsaas list -f=": {*FORMATS},
    "gsaas list -format=": {*FORMATS},
    "gsaas list --f ": {*FORMATS},
    "gsaas list -status ": {*Status},
    "gsaas list -c=s": {"status", "server_id", "server_host"},
    "gsaas list -name=x -f=json -status=": {*Status},
    "gsaas -l -mode=": {"exclusive", "shared"},
    "gsaas -mode=shared -l -locality=": {"any", "local", "remote"},
    "gsaas --launch --hosts ": {"any", "one", "spread"},
    "gsaas run -policy=": {*POLICIES},
    "gsaas policy f": {name for name in POLICIES if name.startswith("f")},
    "gsaas -l -userdata=user-": {"user-data", "user-data.yaml"},
    "gsaas -l -userdata user-": {"user-data", "user-data.yaml"},
    "gsaas run -ncgpus=1 -- cat user-": {"user-data", "user-data.yaml"},
    "gsaas exec training -- cat user-": {"user-data", "user-data.yaml"},
    "gsaas list extra": set(),
    "gsaas show user-": set(),
    "gsaas-manage ": {"bus", "check", "db", "grant-key", "limits", "prove", "verify", "setup"},
    "gsaas-manage --config-file user-data db ": {"upgrade", "version", "check", "recount", "purge"},
    "gsaas-manage check --format=": {"table", "json"},
    "gsaas-status upgrade check --j": {"--json"},
    "gsaas-sim import ": {"api", "csv", "leases", "openb", "swf"},
    "gsaas-sim import swf user-": {"user-data", "user-data.yaml"},
    "gsaas-sim compare one two user-": {"user-data", "user-data.yaml"},
    "gsaas-sim plan --policy=": {*POLICIES},
    "gsaas-standalone --inventory user-": {"user-data", "user-data.yaml"},
}
"""A line -> what may come next."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two files and the generated ones, in which the shells run."""
    folder = tmp_path_factory.mktemp("home")
    for name in ("user-data", "user-data.yaml"):
        (folder / name).touch()
    files.write(folder / "generated")
    return folder


def test_shellcheck_finds_nothing_wrong_with_the_files_for_bash(home: Path) -> None:
    found = [path for share in shells.shares(home) for path in share.glob("bash-completion/*/*")]
    assert len(found) == len({path.name for path in found}) >= 4
    done = subprocess.run(["shellcheck", *found], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
@pytest.mark.parametrize("line", OFFERS)
def test_a_shell_offers_what_may_come_next(line: str, shell: Shell, home: Path) -> None:
    offered = shell(line, home)
    if "gsaas help" in line or line == "gsaas ":
        offered -= {"help"}
    assert offered == OFFERS[line]


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell.__name__)
@pytest.mark.parametrize("name", ["launch", "list", "gpus", "env", "redeem"])
def test_a_shell_offers_the_options_of_the_command(name: str, shell: Shell, home: Path) -> None:
    names = {f"-{word}" for option in COMMANDS[name].options for word in option.names}
    offered = {word.rstrip("=") for word in shell(f"gsaas {name} -", home)}
    assert offered == {*names, "--help"}


@pytest.mark.parametrize("shell", [shells.bash, shells.zsh], ids=lambda shell: shell.__name__)
def test_an_option_is_offered_once_unless_it_may_be_repeated(shell: Shell, home: Path) -> None:
    again = {word.rstrip("=") for word in shell("gsaas launch -network=a -name=b -n", home)}
    assert again & {"-network", "-name"} == {"-network"}


@pytest.mark.parametrize("shell", [shells.bash, shells.fish], ids=lambda shell: shell.__name__)
def test_two_dashes_are_completed_where_they_are_typed(shell: Shell, home: Path) -> None:
    """zsh completes the values of such options; `_arguments` would offer each name twice."""
    assert {word.rstrip("=") for word in shell("gsaas launch --no", home)} == {"--nowait"}
