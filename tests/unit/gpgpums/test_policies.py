# SPDX-License-Identifier: Apache-2.0
"""The GPUs that each policy chooses, and how policies are found."""

from __future__ import annotations

import logging
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import stevedore

from gsaas import exceptions
from gsaas.gpgpums import policies
from gsaas.gpgpums.policies.first_fit import FirstFit
from gsaas.gpgpums.pool import Pool, RecentRequests
from gsaas.objects.gpu import Gpu, parse_capability
from gsaas.objects.placement import Refusal
from gsaas.objects.request import Request
from gsaasclient.cli import cgpus
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import parse

GUIDE = Path(__file__).parents[3] / "doc" / "policies.md"
CONSUMER = "b"
COMPUTE_HOSTS = ("a", "b", "d")


def rows(heading: str) -> list[dict[str, str]]:
    """Return the rows of the table under *heading* in the operators' guide to policies."""
    part = GUIDE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n#")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    names, _, *others = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in others]


def the_pool() -> list[Gpu]:
    return [
        Gpu(
            row["GPU"],
            row["host"],
            index,
            int(row["MiB"]),
            int(row["in use"]),
            exclusive=row["mode"] == "exclusive",
            model=row["model"],
            compute_capability=parse_capability(row["capability"]),
            leases=int(row["leases"]),
            utilisation=float(row["busy"].removesuffix(" %")),
        )
        for index, row in enumerate(rows("The pool"))
    ]


def the_requests() -> dict[str, Request]:
    """Return the requests by letter, parsed as the command line parses them."""
    return {
        row["request"]: Request.from_dict(
            cgpus.from_options(parse(["check", *row["options"].strip("`").split()], COMMANDS)[1]),
            CONSUMER,
        )
        for row in rows("The requests")
    }


def choices(policy: str) -> dict[str, str]:
    """Return the GPUs that *policy* chooses for each request, one after the other; none is returned."""
    pool, recent = Pool(the_pool(), COMPUTE_HOSTS), RecentRequests(100)
    chosen = {}
    for generation, (letter, request) in enumerate(the_requests().items(), start=1):
        recent.add(request)
        pool.mix = recent.mix
        answer = pool.propose(request, policies.load(policy))
        if isinstance(answer, Refusal):
            chosen[letter] = "busy"
            continue
        chosen[letter] = " ".join(share.gpu_uuid for share in answer.shares)
        for uuid, size in answer.memory_by_gpu().items():
            claimed_at = 10 * generation + chosen[letter].rindex(uuid)
            gpu = pool.get(uuid).claim(size, exclusive=request.exclusive, generation=claimed_at)
            pool.put(gpu)
    return chosen


@pytest.mark.parametrize("row", rows("The choices"), ids=lambda row: row["policy"])
def test_each_policy_takes_the_gpus_that_the_guide_says(row):
    assert {"policy": row["policy"], **choices(row["policy"])} == row


def test_every_policy_has_a_row_in_the_guide_and_the_name_of_its_entry_point():
    assert policies.names() == [row["policy"] for row in rows("The choices")]
    listed = GUIDE.read_text(encoding="utf-8").split("\nAll of them:\n\n")[1].split("\n\n")[0]
    assert policies.names() == re.findall(r"^\| `([\w-]+)` \|", listed, re.MULTILINE)
    assert [policies.load(name).name for name in policies.names()] == policies.names()


def test_an_unknown_policy_is_answered_with_the_known_ones():
    with pytest.raises(exceptions.UnknownPolicy, match="best-fit, best-fit-utilisation, energy"):
        policies.load("best-guess")


@pytest.fixture
def strange_entry_points(monkeypatch):
    """Install three policies: one that works, one whose module does not exist, one that is not a policy."""
    installed = [
        EntryPoint("first-fit", f"{FirstFit.__module__}:FirstFit", policies.NAMESPACE),
        EntryPoint("lost", "gsaas.gpgpums.policies.lost:Lost", policies.NAMESPACE),
        EntryPoint("odd", "decimal:Decimal", policies.NAMESPACE),
    ]
    monkeypatch.setattr(
        stevedore.ExtensionManager, "list_entry_points", lambda _self: list(installed)
    )
    policies.installed.cache_clear()
    yield
    policies.installed.cache_clear()


def test_a_broken_policy_is_logged_and_the_others_work(strange_entry_points, caplog):
    with caplog.at_level(logging.ERROR, logger=policies.__name__):
        assert policies.names() == ["first-fit"]

    assert [("lost" in line, "odd" in line) for line in caplog.messages] == [
        (True, False),
        (False, True),
    ]
