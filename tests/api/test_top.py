# SPDX-License-Identifier: Apache-2.0
"""`gsaas top` without a terminal, for scripts and pipes, and for callers that may not see GPUs."""

from __future__ import annotations


def test_admins_see_every_gpu_and_its_leases(desk):
    lease = desk.world.launch(mode="shared", memory_mb=2048)
    desk.sit("admin")
    status, out, err = desk.type("top", "-once")
    assert (status, err) == (0, "")
    assert out.startswith(
        "8 GPUs on 2 hosts, 7 idle, 2048 of 65536 MiB claimed or withheld, 1 lease,"
    )
    (held,) = (line for line in out.splitlines() if "(blue)" in line)
    assert "-----..............." in held
    assert held.endswith(f"shared  {lease['name']} (blue)")
    assert out.count("Quadro M4000") == 8


def test_tenants_see_totals_and_their_own_leases(desk):
    own = desk.world.launch()
    theirs = desk.world.launch("stranger")
    status, out, _ = desk.type("top")  # not a terminal
    assert status == 0
    assert own["id"][:8] in out
    assert theirs["id"][:8] not in out
    assert "gpu1" not in out


def test_programs_get_all_of_it_as_json(desk):
    desk.world.launch(count=8)
    waits = {"cgpus": {"count": 1}, "wait": None}
    desk.world.call("member", "POST", "/v1/leases", {"lease": waits})
    desk.sit("admin")
    shown = desk.read("top")
    assert shown.keys() == {"totals", "gpus", "silent_hosts", "leases", "queue"}
    assert len(shown["gpus"]) == 8
    assert {lease["status"] for lease in shown["leases"]} >= {"QUEUED"}
    assert shown["queue"]["totals"] == {"length": 1, "own": 0}
    desk.sit("reader")
    assert desk.read("top")["gpus"] is None
