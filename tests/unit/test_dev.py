# SPDX-License-Identifier: Apache-2.0
"""./dev: what its commands install into the virtual environment, and when.

A stand-in for Python makes an environment whose programs only record how they were called.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
INPUTS = (
    "dev",
    "constraints.txt",
    *(
        f"{folder}{file}"
        for folder in ("", "client/", "dashboard/", "heat/", "launcher/", "tempest/")
        for file in ("pyproject.toml", "setup.cfg")
    ),
    "launcher/setup.py",
    "launcher/main.c",
    "launcher/api.h",
    "tests/constraints/upper-constraints-2025.2.txt",
    "tests/constraints/upper-constraints-2026.1.txt",
    "tests/packages.txt",
    *(
        str(list_.relative_to(REPOSITORY))
        for list_ in sorted(REPOSITORY.glob("tests/*/packages.txt"))
    ),
)

PYTHON = """\
#!/bin/bash
echo "python $*" >>"$JOURNAL"
[[ "$*" != *support.programs* ]] || echo "$PATH"
[ "$1 $2" = "-m venv" ] || exit 0
mkdir -p "$3/bin"
for program in python pip pytest ruff lint-imports mypy reno sphinx-build oslo-config-generator \
    oslopolicy-sample-generator twine; do
    printf '#!/bin/bash\\necho "%s $*" >>"$JOURNAL"\\n[[ "$*" != *"$FAIL"* ]]\\n' $program >"$3/bin/$program"
    chmod +x "$3/bin/$program"
done
"""
SYSTEM = {
    "id": "echo 0",
    "dpkg-query": 'shift 3; printf \'installed %s\\n\' "$@" | grep -vx "installed $MISSING"',
    "apt-get": 'echo "apt-get $*" >>"$JOURNAL"; [[ "$*" != *"$FAIL"* ]]',
    "tar": ":",
    "flock": ":",
    "unshare": 'echo "unshare $*" >>"$JOURNAL"; shift 5; exec "$@"',
}
"""Root's machine, on which all packages are installed but one. The copy has nothing for tar to put into a package."""
DEMO = ["-e launcher -e client -e .[standalone,tvm]"]
GSAAS = ["-e launcher -e client -e .[api,engine,rodvr,monitor,standalone,sim,tvm,mysql,postgresql]"]
WITH_TESTS = [
    "-e launcher -e client[osc] -e .[api,engine,rodvr,monitor,standalone,sim,tvm,mysql,postgresql] --group test",
    "-e dashboard -e heat -e tempest",
]
CONSTRAINED = [
    "-e launcher -e client[osc] -e .[api,engine,rodvr,monitor,standalone,mysql,postgresql] --group constrained"
]


WAITING = """\
#!/bin/bash
trap 'echo "pytest interrupted" >>"$JOURNAL"; exit 2' INT
echo "pytest began" >>"$JOURNAL"
for _ in {1..2400}; do sleep 0.1; done
"""
"""Tests that go on for minutes unless they are interrupted."""


class Workshop:
    """A copy of what ./dev reads, at *root*.

    `said` and `complained` are what the last command wrote to its standard output and to standard error.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._journal = root / "journal"
        for name in INPUTS:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, root / name)
        self._program("python", PYTHON)
        for name, line in SYSTEM.items():
            self._program(name, f"#!/bin/bash\n{line}\n")

    def _program(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)
        (self.root / name).chmod(0o755)

    def dev(self, *arguments: str, fail: str = "nothing fails", missing: str = "no package") -> int:
        """Run ./dev in the copy; return the exit status.

        Programs fail whose arguments contain *fail*. The package *missing* is not installed, whatever apt-get does.
        """
        self._journal.write_text("")
        found = subprocess.run(
            [self.root / "dev", *arguments],
            env=self.environment(fail, missing),
            capture_output=True,
            text=True,
            check=False,
        )
        self.said, self.complained = found.stdout, found.stderr
        return found.returncode

    def replace_pytest(self, text: str) -> None:
        """Have the script *text* run as pytest from now on; the environment is made before."""
        self.dev("lint")
        (self.root / ".venv/bin/pytest").write_text(text)

    def environment(
        self, fail: str = "nothing fails", missing: str = "no package"
    ) -> dict[str, str]:
        return os.environ | {
            "PATH": f"{self.root}:{os.environ['PATH']}",
            "PYTHON": str(self.root / "python"),
            "JOURNAL": str(self._journal),
            "FAIL": fail,
            "MISSING": missing,
        }

    def installed(self) -> list[str]:
        """What the last command had pip install from this source tree, e.g. `-e . --group test`."""
        calls = [line for line in self._journal.read_text().splitlines() if line.startswith("pip")]
        return [line[line.index("-e ") :] for line in calls if "-e " in line]

    def tested(self) -> list[str]:
        """What the last command told pytest, for each time that it was called."""
        lines = self._journal.read_text().splitlines()
        return [
            arguments
            for name, _, arguments in (line.partition(" ") for line in lines)
            if name == "pytest"
        ]

    def called(self, program: str, arguments: str = "") -> bool:
        """Whether the last command called *program* with arguments that end with these."""
        lines = self._journal.read_text().splitlines()
        return any(line.partition(" ")[0] == program and line.endswith(arguments) for line in lines)

    def declared(self) -> set[str]:
        """The packages whose programs the last tests had."""
        lines = self._journal.read_text().splitlines()
        called = [line for line in lines if line.startswith("python -m tests.support.programs ")]
        return set(called[-1].split()[3:])

    def ran(self, module: str) -> bool:
        """Whether the last command ran a Python module of this source tree."""
        return f"python -m {module}" in self._journal.read_text().splitlines()


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    return Workshop(tmp_path)


@pytest.mark.parametrize(
    ("command", "installed"),
    [
        (["demo"], DEMO),
        (["run", "true"], GSAAS),
        (["sample"], GSAAS),
        (["lint"], WITH_TESTS),
        (["docs"], WITH_TESTS),
        (["generate"], WITH_TESTS),
        (["bench", "grants"], WITH_TESTS),
    ],
)
def test_a_command_installs_what_it_needs(
    workshop: Workshop, command: list[str], installed: list[str]
) -> None:
    assert workshop.dev(*command) == 0
    assert workshop.installed() == installed


def test_nothing_is_installed_twice(workshop: Workshop) -> None:
    workshop.dev("run", "true")
    assert workshop.dev("run", "true") == 0
    assert not workshop.called("pip")
    assert not workshop.called("python")


def test_what_demo_lacks_is_added_when_another_command_needs_it(workshop: Workshop) -> None:
    workshop.dev("demo")
    workshop.dev("run", "true")
    assert workshop.installed() == GSAAS
    workshop.dev("demo")
    assert workshop.installed() == []


def test_what_an_installation_leaves_in_the_folders_is_no_input(workshop: Workshop) -> None:
    workshop.dev("run", "true")
    (workshop.root / "client" / "python_gsaasclient.egg-info").mkdir()
    (workshop.root / "launcher" / "build").mkdir()
    assert workshop.dev("run", "true") == 0
    assert not workshop.called("pip")


def test_the_tools_of_the_tests_are_added_to_what_is_there(workshop: Workshop) -> None:
    workshop.dev("run", "true")
    workshop.dev("lint")
    assert workshop.installed() == WITH_TESTS
    workshop.dev("lint")
    assert workshop.installed() == []
    workshop.dev("run", "true")
    assert workshop.installed() == []


@pytest.mark.parametrize(
    "changed",
    [
        "pyproject.toml",
        "setup.cfg",
        "client/setup.cfg",
        "launcher/setup.py",
        "launcher/main.c",
        "constraints.txt",
    ],
)
def test_what_changed_is_installed_anew(workshop: Workshop, changed: str) -> None:
    workshop.dev("lint")
    with (workshop.root / changed).open("a") as file:
        file.write("\n# changed\n")
    workshop.dev("run", "true")
    assert workshop.installed() == GSAAS
    workshop.dev("lint")
    assert workshop.installed() == WITH_TESTS


@pytest.mark.parametrize("command", [["run", "true"], ["sample"], ["lint"]])
def test_an_installation_that_failed_is_tried_again(workshop: Workshop, command: list[str]) -> None:
    assert workshop.dev(*command, fail="-e launcher") != 0
    assert workshop.dev(*command) == 0
    assert workshop.installed()


def test_an_installation_that_failed_is_not_continued(workshop: Workshop) -> None:
    workshop.dev("lint", fail="-e launcher")
    (workshop.root / ".venv/half-installed").touch()
    workshop.dev("lint")
    assert not (workshop.root / ".venv/half-installed").exists()


def test_what_is_no_longer_constrained_does_not_stay(workshop: Workshop) -> None:
    workshop.dev("lint")
    (workshop.root / ".venv/formerly-needed").touch()
    with (workshop.root / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    workshop.dev("lint")
    assert (workshop.root / ".venv/formerly-needed").exists()
    with (workshop.root / "constraints.txt").open("a") as file:
        file.write("\n# changed\n")
    workshop.dev("lint")
    assert not (workshop.root / ".venv/formerly-needed").exists()


@pytest.mark.parametrize("tool", ["check .", "format --check", "--no-cache", "lint ."])
def test_lint_fails_with_any_of_its_tools(workshop: Workshop, tool: str) -> None:
    assert workshop.dev("lint") == 0
    assert workshop.called("mypy")
    assert workshop.dev("lint", fail=tool) != 0


def test_some_tests_run_under_openstacks_constraints(workshop: Workshop) -> None:
    assert workshop.dev("test", "constrained") == 0
    assert workshop.installed() == CONSTRAINED
    (arguments,) = workshop.tested()
    assert "tests/unit/netlink" in arguments
    assert "tests/unit/db" not in arguments


def test_all_tests_of_another_release_of_openstack_have_an_environment_of_their_own(
    workshop: Workshop,
) -> None:
    workshop.dev("test", "constrained")
    assert workshop.dev("test", "constrained", "2025.2", "all") == 0
    assert workshop.installed() == CONSTRAINED
    (arguments,) = workshop.tested()
    assert "tests/unit/netlink" in arguments
    assert "tests/unit/db" in arguments
    workshop.dev("test", "constrained")
    assert workshop.installed() == []


def test_changed_constraints_of_openstack_are_installed_anew(workshop: Workshop) -> None:
    workshop.dev("test", "constrained")
    workshop.dev("test", "constrained", "tests/unit/rpc")
    assert workshop.installed() == []
    assert workshop.tested() == [
        "-o cache_dir=.pytest_cache/constrained-2026.1 --hypothesis-profile=quick tests/unit/rpc"
    ]
    with (workshop.root / "tests/constraints/upper-constraints-2026.1.txt").open("a") as file:
        file.write("# changed\n")
    workshop.dev("test", "constrained")
    assert workshop.installed() == CONSTRAINED


def test_constraints_that_admit_no_release_end_the_tests(workshop: Workshop) -> None:
    assert workshop.dev("test", "constrained", fail="upper-constraints") != 0
    assert workshop.tested() == []
    assert workshop.dev("test", "constrained") == 0
    assert workshop.installed() == CONSTRAINED


@pytest.mark.parametrize(
    ("words", "kind"), [([], "most"), (["ci"], "ci"), (["thorough"], "thorough")]
)
def test_all_lists_of_a_kind_are_run(workshop: Workshop, words: list[str], kind: str) -> None:
    assert workshop.dev("test", *words) == 0
    assert workshop.ran(f"tests.run {kind}")


def test_quick_tests_are_those_of_the_folders_that_are_named_or_the_fast_ones(
    workshop: Workshop,
) -> None:
    named = workshop.root / "tests/unit/gpgpums"
    named.mkdir(parents=True)
    workshop.dev("test", "quick", "tests/unit/gpgpums", "-x")
    assert workshop.tested() == ["--hypothesis-profile=quick tests/unit/gpgpums -x"]
    workshop.dev("test", "quick", "-k", "queue")
    (fast,) = workshop.tested()
    assert " -m not slow and " in fast
    assert fast.endswith(" tests/unit tests/api -k queue")


def test_tests_have_the_programs_of_the_packages_that_their_folder_declares(
    workshop: Workshop,
) -> None:
    workshop.dev("test", "tests/guest/test_guest.py", "-x")
    assert {"gcc", "debootstrap"} <= workshop.declared()
    assert "conntrack" not in workshop.declared()
    workshop.dev("test", "tests/kernel/rodvr", "tests/services")
    assert {"gcc", "conntrack", "galera-4"} <= workshop.declared()
    assert "debootstrap" not in workshop.declared()
    workshop.dev("test", "quick")
    assert "gcc" in workshop.declared()
    assert not {"conntrack", "fish"} & workshop.declared()


def test_only_tests_on_openstack_see_the_network_namespaces_of_the_machine(
    workshop: Workshop,
) -> None:
    workshop.dev("test", "tests/kernel")
    assert workshop.called("unshare")
    workshop.dev("test", "constrained")
    assert workshop.called("unshare")
    workshop.dev("test", "openstack")
    assert not workshop.called("unshare")
    workshop.dev("test", "-k", "any")
    assert not workshop.called("unshare")


def test_tests_that_name_no_folder_have_the_programs_of_all_but_slurm(workshop: Workshop) -> None:
    workshop.dev("test", "-k", "queue")
    assert {"debootstrap", "conntrack", "qemu-utils"} <= workshop.declared()
    assert "slurmd" not in workshop.declared()
    workshop.dev("test", "slurm")
    assert "slurmd" in workshop.declared()


def test_tests_are_repeated_by_a_program_of_their_own(workshop: Workshop) -> None:
    workshop.dev("test", "--repeat=5", "--load", "tests/hostile")
    assert workshop.tested() == []
    assert workshop.ran("tests.run.repeat --repeat=5 --load tests/hostile")


def test_the_tests_with_the_tools_of_others_are_a_group_of_their_own(workshop: Workshop) -> None:
    assert workshop.dev("test", "users", "-x") == 0
    assert workshop.tested() == ["tests/openstack -m users -x"]
    assert workshop.dev("test", "users", fail="-m users") != 0


def test_the_tests_with_slurm_are_a_group_of_their_own(workshop: Workshop) -> None:
    assert workshop.dev("test", "slurm", "-k", "salloc") == 0
    assert workshop.tested() == ["tests/slurm -k salloc"]
    assert workshop.dev("test", "slurm", fail="tests/slurm") != 0


def test_packages_that_a_killed_run_with_slurm_has_installed_are_removed_by_the_next(
    workshop: Workshop,
) -> None:
    note = workshop.root / "build/slurm-packages"
    note.parent.mkdir()
    note.write_text("munge\nslurmd\n")
    assert workshop.dev("test", "slurm", fail="purge") == 0
    assert note.exists(), "the packages are there still"
    assert workshop.dev("test", "slurm") == 0
    assert workshop.called("apt-get", "purge -y -qq --autoremove munge slurmd")
    workshop.dev("test", "slurm")
    assert not workshop.called("apt-get")


def test_that_slurm_cannot_be_installed_is_said_with_what_is_missing(workshop: Workshop) -> None:
    workshop.dev("test", "slurm", missing="slurmd")
    assert "Slurm cannot be installed here: there is no slurmd\n" in workshop.complained
    assert workshop.called("apt-get", "purge -y -qq --autoremove slurmd")
    workshop.dev("test", "slurm")
    assert "cannot be installed" not in workshop.complained


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tests_with_slurm_are_interrupted_when_dev_alone_is_told_to_end(
    workshop: Workshop, number: int
) -> None:
    workshop.replace_pytest(WAITING)
    with subprocess.Popen(
        [workshop.root / "dev", "test", "slurm"], env=workshop.environment(missing="slurmd")
    ) as running:
        until(lambda: workshop.called("pytest", "began"), "the tests to begin")
        running.send_signal(number)
        assert running.wait() == 2
    assert workshop.called("pytest", "interrupted")
    assert workshop.called("apt-get", "purge -y -qq --autoremove slurmd")


def test_all_artefacts_are_built_by_one_command(workshop: Workshop) -> None:
    assert workshop.dev("package") == 0
    assert not workshop.called("sphinx-build")
    assert workshop.dev("package", "--all") == 0
    assert workshop.called("sphinx-build")
    assert workshop.ran("images.build")
    assert workshop.dev("package", "--all", fail="-b html") != 0
    assert not workshop.ran("images.build")
