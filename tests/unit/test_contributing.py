# SPDX-License-Identifier: Apache-2.0
"""CONTRIBUTING.md is enough: a newcomer who does what its rows say, and nothing else, has all tests of that pass.

Each test makes a copy of the sources, changes it as a row says, and runs the tests that the row names there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 900
"""Seconds."""

Copy = Callable[..., subprocess.CompletedProcess[str]]


class Sources:
    """A copy of the sources, which a newcomer changes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(
            [
                "git",
                "-c",
                "safe.directory=*",
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)

    def change(self, name: str, change: Callable[[str], str]) -> None:
        """Change one file; it has to become another."""
        path = self.root / name
        before = path.read_text(encoding="utf-8")
        after = change(before)
        assert after != before, name
        path.write_text(after, encoding="utf-8")

    def insert(self, name: str, before: str, new: str) -> None:
        """Write *new* into a file, before the only place of *before* in it."""
        assert (self.root / name).read_text(encoding="utf-8").count(before) == 1, (name, before)
        self.change(name, lambda text: text.replace(before, new + before))

    def install(self) -> None:
        """Bring up to date what is installed of it: its entry points."""
        self._python("-c", "import setuptools; setuptools.setup()", "-q", "egg_info")

    def test(self, *arguments: str) -> str:
        """Run tests of the copy, which have to pass; return what pytest printed."""
        done = self._python("-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, check=False)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def _python(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.root), str(self.root / "client")])
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=check,
        )


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path / "sources")


def row(beginning: str) -> str:
    """Return the row of CONTRIBUTING.md that begins so."""
    (found,) = [
        line
        for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| {beginning} |")
    ]
    return found


def named(text: str) -> Iterator[str]:
    """Yield the files and folders that a row names, where there are any."""
    for path in re.findall(r"`([\w./-]+)`|\]\(([\w./-]+)\)", text):
        yield "".join(path).rstrip("/")


POLICY = '''\
# SPDX-License-Identifier: Apache-2.0
"""roomiest: the GPU with the most free memory.

The price is that few GPUs stay idle.
"""

from gsaas.gpgpums.policies.base import Policy


class Roomiest(Policy):
    name = "roomiest"
    source = "a newcomer"

    def order(self, candidates, request):
        return candidates.most_free_first()
'''


@pytest.mark.slow
def test_a_policy_is_a_module_an_entry_point_its_rows_and_its_rule(sources: Sources):
    policies = "gsaas/gpgpums/policies"
    files = ["setup.cfg", "doc/policies.md", "tests/unit/gpgpums/reference.py"]
    assert set(named(row("a scheduling policy"))) == {policies, *files}

    (sources.root / policies / "roomiest.py").write_text(POLICY, encoding="utf-8")
    entry = "    round-robin = gsaas.gpgpums.policies.round_robin:RoundRobin\n"
    sources.insert("setup.cfg", entry, "    roomiest = gsaas.gpgpums.policies.roomiest:Roomiest\n")
    sources.install()
    with pytest.raises(AssertionError):  # the tests see the policy, and miss its rows
        sources.test("tests/unit/gpgpums/test_policies.py")
    guide = (ROOT / "doc/policies.md").read_text(encoding="utf-8")
    (choices,) = re.findall(r"^\| worst-fit (\|.*)$", guide, re.MULTILINE)
    sources.insert(
        "doc/policies.md",
        "| `round-robin` | NGS, RR | ",
        "| `roomiest` | a newcomer | most free memory | pool order | no |\n",
    )
    sources.insert("doc/policies.md", "| round-robin | ", f"| roomiest {choices}\n")
    rule = '    "round-robin": round_robin,\n'
    sources.insert(
        "tests/unit/gpgpums/reference.py",
        rule,
        '    "roomiest": lambda state, _: (-state.usable, state.place),\n',
    )

    sources.test(
        "--hypothesis-profile=quick", "-m", "not slow and not thorough", "tests/unit/gpgpums"
    )
    sources.test("tests/api/test_policies.py")


@pytest.mark.slow
def test_a_field_of_the_api_is_its_schema_its_microversion_and_its_row(sources: Sources):
    text = row("a field of the API")
    history, digests = "gsaas/api/microversions.py", "tests/api/test_microversions.py"
    assert set(named(text)) == {"gsaas/api/schemas", history, digests, "doc/api.md"}

    known = [
        int(minor)
        for minor in re.findall(r"^    \(1, (\d+)\),$", (ROOT / history).read_text(), re.MULTILINE)
    ]
    newest, new = f"1.{known[-1]}", f"1.{known[-1] + 1}"
    sources.insert(
        "gsaas/api/schemas/policies.py",
        '    "description": {"type": "string", "description": "What it does, in one line."},\n',
        '    "looks_at_utilisation": common.since(\n'
        f'        "{new}",\n'
        '        {"type": "boolean", "description": "Whether it looks at how busy GPUs are."},\n'
        "    ),\n",
    )
    sources.insert(
        "gsaas/api/policies.py",
        '        "source": policy.source,\n',
        '        "looks_at_utilisation": policy.looks_at_utilisation,\n',
    )
    sources.change(
        history,
        lambda old: old.replace(
            f"    (1, {known[-1]}),\n", f"    (1, {known[-1]}),\n    (1, {known[-1] + 1}),\n"
        ).replace(f"\n{newest}: ", f"\n{new}: `looks_at_utilisation` of policies.\n{newest}: "),
    )
    sources.insert(
        "doc/api.md", f"| {newest} | ", f"| {new} | `looks_at_utilisation` of policies |\n"
    )
    with pytest.raises(AssertionError) as failed:
        sources.test(digests, "-k", "never_changes", "-m", "")
    (digest,) = set(re.findall(rf'"{re.escape(newest)}": "(\w{{16}})"', str(failed.value)))
    sources.insert(digests, '}\n"""Microversion -> a digest', f'    "{newest}": "{digest}",\n')

    sources.test(
        digests,
        "tests/api/test_versions.py",
        "tests/api/test_policies.py",
        "tests/api/test_reference.py",
    )
