# SPDX-License-Identifier: Apache-2.0
"""The real `openstack` with the commands `openstack gpu …`, against the API over HTTP."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path

import flask
import pytest
import yaml
from openstack import resource

from gsaas.db import models
from gsaasclient.osc import command
from tests.api.openstack_user import user as user
from tests.support import tenant_guide

pytestmark = pytest.mark.slow

HALF = ("--memory", "4096", "--no-server")


def alloc(user, *words: str, caller: str = "member"):
    """Make a lease without a VM."""
    return user.read("gpu", "lease", "create", "--no-server", *words, user=caller)


def test_a_launch_waits_and_prints_the_lease(user, tmp_path):
    script = tmp_path / "boot.sh"
    script.write_bytes(b"#!/bin/sh\n\xff")
    status, out, err = user.type(
        *("gpu", "lease", "create", "training", "--cgpus", "2", "--memory", "2048", "--wait"),
        *("--key-name", "mine", "--user-data", str(script), "-f", "json"),
    )
    assert status == 0, err
    shown = yaml.safe_load(out)
    assert (shown["name"], shown["status"], shown["mode"]) == ("training", "ACTIVE", "shared")
    assert shown["addresses"] == ["10.0.0.5"]
    assert "timings" not in shown
    assert "timings" in user.read("gpu", "lease", "show", "training")
    assert [device["masked_address"] for device in shown["devices"]] == [
        "169.254.71.1:8308",
        "169.254.71.2:8308",
    ]
    assert user.world.cloud.asked[-1] == {
        "name": "training",
        "key_name": "mine",
        "user_data": base64.b64encode(b"#!/bin/sh\n\xff").decode(),
    }


def test_remarks_of_the_cloud_are_beside_the_output(user):
    user.world.cloud.notes = ["flavorRef: ignored by this cloud"]
    lease = user.connect().gpu_scheduling.create_lease(
        cgpus={"count": 1}, server={"flavorRef": "small"}
    )
    assert lease.notes


def test_a_launch_that_does_not_fit_says_what_would(user):
    alloc(user, "--cgpus", "6")
    before = user.world.rows()
    error = user.refused("gpu", "lease", "create", "--cgpus", "3")
    assert "GPUs it left out" in error
    assert "this would fit now: --cgpus=2 --kind=cuda\n" in error
    assert "request req-" in error
    assert user.world.rows() == before


def test_what_would_fit_without_a_requirement_names_its_option(user):
    error = user.refused("gpu", "lease", "create", "--gpu-model", "A100")
    assert "without --gpu-model: --cgpus=1" in error


def test_what_a_vm_needs_is_said_with_the_options_of_openstack(user):
    user.world.cloud.missing = [
        {"field": "imageRef", "names": ["debian"], "more": 0},
        {"field": "networks", "names": ["private", "lan"], "more": 0},
    ]
    error = user.refused("gpu", "lease", "create")
    assert "the VM needs an image and a network, and this cloud" in error
    assert "  --image    debian\n  --network  private, lan\n" in error


def test_a_launch_that_fails_prints_its_fault(user, monkeypatch):
    user.world.engine.idle = True
    lease_changed = user.world.engine.lease_changed

    def fail(context, lease_id):
        lease_changed(context, lease_id)
        user.world.engine.fail(lease_id, "boot", "the host went away")

    monkeypatch.setattr(user.world.engine, "lease_changed", fail)
    error = user.refused("gpu", "lease", "create", "--wait")
    assert "failed at boot: the host went away" in error


def test_an_interrupted_wait_names_the_commands_that_show_and_end_the_lease(user, monkeypatch):
    user.world.engine.idle = True

    def interrupt(*_args, **_more):
        raise KeyboardInterrupt

    monkeypatch.setattr(resource, "wait_for_status", interrupt)
    error = user.refused("gpu", "lease", "create", "--wait")
    (lease,) = user.read("gpu", "lease", "list")
    for verb in ("show", "delete"):
        assert f"openstack gpu lease {verb} {lease['Name']} " in error


def test_the_error_page_of_a_proxy_is_its_status(user):
    @user.world.app.before_request
    def refuse():
        if flask.request.path == "/v1/leases":
            return "<html>maintenance</html>", 502
        return None

    assert "HTTP status 502" in user.refused("gpu", "lease", "list")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--mode", "shared"), "--memory is needed"),
        (("--mode", "exclusive", "--memory", "1"), "--memory is not valid with --mode exclusive"),
        (
            ("--no-server", "--key-name", "mine"),
            "--no-server cannot be combined with options of a VM",
        ),
        (("--consumer-uid", "7"), "are valid only with --no-server"),
        (("--keepalive", "60"), "are valid only with --no-server"),
        (("--user-data", "/nonexistent"), "/nonexistent cannot be read: No such file"),
    ],
)
def test_options_that_contradict_each_other_are_refused_before_any_request(user, words, sentence):
    before = user.world.rows()
    assert sentence in user.refused("gpu", "lease", "create", *words)
    assert user.world.rows() == before


def test_a_value_that_the_api_refuses_is_named_by_its_option(user):
    error = user.refused("gpu", "lease", "create", "--policy", "x" * 65)
    assert '--policy is "xxx' in error


@pytest.mark.parametrize(
    "words",
    [
        ("lease", "create", "--cgpus", "0"),
        ("lease", "create", "--queue", "long"),
        ("lease", "create", "--memory", "10m"),
        ("usage", "list", "--end", "2020"),
        ("reservation", "create", "--end", "tomorrowx"),
        ("lease", "list", "--sort", "name:up"),
        ("lease", "list", "--limit", "-1"),
        ("host", "set", "gpu1", "--disable", "--enable"),
        ("policy", "set"),
    ],
)
def test_a_value_that_is_no_value_is_refused_by_its_option(user, words):
    with pytest.raises(SystemExit) as ended:
        user.type("gpu", *words)
    assert ended.value.code == 2


def test_a_program_that_runs_already_gets_gpus_and_their_environment(user):
    lease = alloc(user, "job", "--cgpus", "1", "--memory", "512", "--keepalive", "600")
    assert (lease["status"], lease["access"]) == ("ACTIVE", "direct")
    assert lease["kept_until"]
    variables = user.read("gpu", "lease", "env", "job")
    assert variables["RCUDA_DEVICE_COUNT"] == "1"
    lines = user.do("gpu", "lease", "env", "job", "--export")
    told = subprocess.run(
        ["sh", "-c", f"{lines}\nexec env"], capture_output=True, text=True, check=True, env={}
    ).stdout.splitlines()
    assert {f"{name}={value}" for name, value in variables.items()} <= set(told)


def test_a_lease_in_every_format(user):
    lease = alloc(user, "job")
    shown = ("gpu", "lease", "show", "job")
    assert user.read(*shown)["id"] == lease["id"]
    assert yaml.safe_load(user.do(*shown, "-f", "yaml"))["id"] == lease["id"]
    assert user.do(*shown, "-f", "value", "-c", "id") == f"{lease['id']}\n"
    assert f'id="{lease["id"]}"\n' in user.do(*shown, "-f", "shell")
    assert f"| {lease['id']} " in user.do(*shown)
    rows = csv.DictReader(io.StringIO(user.do("gpu", "lease", "list", "-f", "csv")))
    assert [(row["ID"], row["cGPUs"]) for row in rows] == [(lease["id"], "1")]


def test_lists_are_sorted_limited_and_continued(user):
    made = [alloc(user, f"lease{number}", "--memory", "64")["id"] for number in range(5)]

    def ids(*words: str) -> list[str]:
        return [row["ID"] for row in user.read("gpu", "lease", "list", *words)]

    assert ids() == made
    assert ids("--sort", "mode,name:desc") == made[::-1]
    assert ids("--limit", "3") == made[:3]
    assert ids("--limit", "1", "--marker", made[1]) == [made[2]]
    assert ids("--marker", made[1]) == made[2:]
    assert ids("--name", "lease3", "--status", "active") == [made[3]]
    assert ids("--changes-since", "2020-01-01") == made
    assert set(user.read("gpu", "lease", "list", "--long")[0]) == {
        column.heading for column in command_columns("leases", "LONG")
    }


def command_columns(module: str, name: str) -> tuple[command.Column, ...]:
    from importlib import import_module

    columns: tuple[command.Column, ...] = getattr(import_module(f"gsaasclient.osc.{module}"), name)
    return columns


def test_only_admins_list_the_leases_of_all_projects(user):
    alloc(user)
    assert len(user.read("gpu", "lease", "list", "--all-projects", user="admin")) == 1
    assert user.read("gpu", "lease", "list", user="admin") == []
    error = user.refused("gpu", "lease", "list", "--all-projects")
    assert "gsaas:leases:list-all-projects" in error


def test_a_lease_is_renamed(user):
    lease = alloc(user, "old")
    assert user.do("gpu", "lease", "set", "old", "--name", "new") == ""
    assert user.read("gpu", "lease", "show", "new")["id"] == lease["id"]
    assert "nothing to change" in user.refused("gpu", "lease", "set", "new")
    assert "has an effect in the queue only" in user.refused(
        "gpu", "lease", "set", "new", "--priority", "-1"
    )


def test_several_leases_are_ended_at_once_and_those_that_are_missing_named(user):
    for name in ("one", "two"):
        alloc(user, name, "--memory", "64")
    error = user.refused("gpu", "lease", "delete", "one", "none", "two", "--wait")
    assert "there is no lease of this project with the name or id none" in error
    assert "1 of 3 leases could not be ended" in error
    assert user.read("gpu", "lease", "list") == []
    assert len(user.read("gpu", "lease", "list", "--status", "RELEASED")) == 2


def test_a_lease_that_is_named_twice_is_ended_once_and_no_other_in_its_stead(user):
    other = alloc(user, "other", "--memory", "64")["id"]
    named = alloc(user, other[:8], "--memory", "64")["id"]
    user.do("gpu", "lease", "delete", other[:8], other[:8], named)
    assert [lease["ID"] for lease in user.read("gpu", "lease", "list")] == [other]


def test_what_happened_to_a_lease_is_listed(user):
    alloc(user, "job")
    events = user.read("gpu", "lease", "event", "list", "job")
    assert events[0]["Event"] == "claim"


def test_requests_wait_in_the_queue(user):
    alloc(user, "--cgpus", "8")
    first = alloc(user, "first", "--queue", "600")
    alloc(user, "second", "--queue", "unlimited")
    assert (first["status"], first["queue"]["position"]) == ("QUEUED", 1)
    assert [row["Name"] for row in user.read("gpu", "queue", "list")] == ["first", "second"]
    user.do("gpu", "lease", "set", "first", "--priority", "-1")
    assert [row["Name"] for row in user.read("gpu", "queue", "list")] == ["second", "first"]
    (row,) = user.read("gpu", "queue", "list", "--long", "--sort", "name", "--limit", "1")
    assert (row["Name"], row["Attended"]) == ("first", False)


def test_a_released_lease_is_shown_by_its_name(user):
    alloc(user, "job")
    user.do("gpu", "lease", "delete", "job", "--wait")
    assert user.read("gpu", "lease", "show", "job")["status"] == "RELEASED"
    assert "no lease of this project" in user.refused("gpu", "lease", "delete", "job")


def test_cgpus_are_reserved_and_launched_in_the_reservation(user):
    words = ("gpu", "reservation")
    wanted = ("--cgpus", "2", "--memory", "64", "--end", "2040-01-31T17:00:00Z")
    made = user.read(*words, "create", "course", *wanted, "--start", "2040-01-31T00:00Z")
    assert (made["name"], made["status"], made["cgpus"], made["kept"]) == (
        "course",
        "PENDING",
        2,
        0,
    )
    assert made["start"].startswith("2040-01-31T00:00:00")
    assert [row["ID"] for row in user.read(*words, "list")] == [made["id"]]
    assert user.read(*words, "show", made["id"]) == made
    assert user.do(*words, "set", "course", "--name", "lecture") == ""
    made = made | {"name": "lecture"}
    assert user.read(*words, "show", "lecture") == made
    create = ("gpu", "lease", "create", "--no-server", "--reservation", made["name"])
    assert "launched in it from 2040-01-31" in user.refused(*create, "--memory", "64")
    check = ("gpu", "check", "create", "--reservation", made["id"][:8], "--memory", "64")
    assert user.read(*check)["code"] == "gsaas.reservation.not-active"
    assert "1 of 2 reservations could not be cancelled" in user.refused(
        *words, "delete", "no-such-reservation", made["id"]
    )
    assert user.read(*words, "list") == []
    assert [row["Status"] for row in user.read(*words, "list", "--status", "cancelled")] == [
        "CANCELLED"
    ]


@pytest.mark.parametrize("how", ["full", "closed", "column"])
@pytest.mark.parametrize("noun", ["lease", "reservation"])
def test_what_cannot_be_printed_is_given_back(user, monkeypatch, noun, how):
    options = {"lease": ["--no-server"], "reservation": ["--end", "2040-01-31"]}
    words = ["gpu", noun, "create", "--memory", "64", *options[noun]]
    if how == "column":
        status, _, err = user.type(*words, "-c", "no-such-column")
    else:
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full if how == "full" else None)
            status, _, err = user.type(*words)
    kind, over = {
        "lease": (models.LeaseRow, "RELEASED"),
        "reservation": (models.ReservationRow, "CANCELLED"),
    }[noun]
    with user.world.database.read() as session:
        (row,) = session.query(kind)
    assert (status, row.status) == (1, over)
    assert f"{noun} {row.id} is given back" in err


def test_a_remark_does_not_control_the_terminal(user):
    user.world.cloud.defaults = {"\x1b[2Jmine": ""}
    status, _, err = user.type("gpu", "lease", "create")
    assert (status, "note: chosen: \ufffd[2Jmine\n" in err, "\x1b" in err) == (0, True, False)


def test_a_lease_is_made_even_if_remarks_cannot_be_written(user, monkeypatch):
    user.world.cloud.notes = ["key_name: ignored by this cloud"]
    words = ("gpu", "lease", "create", "--key-name", "mine", "-f", "value", "-c", "name")
    # Closed, the file still has the remark.
    with (
        suppress(OSError),
        Path("/dev/full").open("w", buffering=1) as full,
        monkeypatch.context() as patch,
    ):
        patch.setattr(sys, "stderr", full)
        status, out, _ = user.type(*words)
    assert (status, out.startswith("lease-")) == (0, True)
    assert "note: key_name: ignored" in user.type(*words)[2]


def test_tenants_see_totals_instead_of_hosts_and_are_told_so(user):
    status, out, err = user.type("gpu", "host", "list", "-f", "value")
    assert (status, out) == (0, "")
    assert "openstack gpu totals show" in err
    assert user.read("gpu", "totals", "show")["gpus"] == 8


def test_tenants_see_models_instead_of_gpus(user):
    models = user.read("gpu", "model", "list")
    assert models == [
        {
            "Model": "Quadro M4000",
            "Kind": "cuda",
            "Compute Capability": None,
            "Memory MiB": 8192,
            "GPUs": 8,
            "Idle": 8,
            "Free MiB": 65536,
            "Largest Share MiB": 8192,
        }
    ]
    assert user.read("gpu", "list") == user.read("gpu", "list", "--sort", "used_mb") == models
    assert user.read("gpu", "model", "list", user="admin") == models


def test_an_admin_takes_gpus_and_hosts_out_of_service(user):
    def state(*words: str):
        shown = user.read(*words, user="admin")
        return shown["disabled"], shown["disabled_reason"]

    user.do(*("gpu", "set", "GPU-0002-3", "--disable", "--reason", "fan broken"), user="admin")
    assert state("gpu", "show", "GPU-0002-3") == (True, "fan broken")
    user.do("gpu", "set", "GPU-0002-3", "--enable", user="admin")
    assert state("gpu", "show", "GPU-0002-3") == (False, None)
    user.do("gpu", "host", "set", "gpu1", "--disable", user="admin")
    assert state("gpu", "host", "show", "gpu1") == (True, None)
    assert len(user.read("gpu", "list", "--long", user="admin")) == 8
    hosts = user.read("gpu", "host", "list", "--long", "--sort", "name:desc", user="admin")
    assert [host["Name"] for host in hosts] == ["gpu2", "gpu1", "compute1"]
    for words in (("gpu", "set", "GPU-0002-3"), ("gpu", "host", "set", "gpu1")):
        assert "nothing to change" in user.refused(*words, user="admin")
        error = user.refused(*words, "--enable", "--reason", "x", user="admin")
        assert "--reason is valid only with --disable" in error
    assert "does not report" in user.refused(
        "gpu", "set", "GPU-0001-0", "--host", "gpu2", user="admin"
    )


def test_an_admin_forgets_a_host(user):
    assert "--force" not in user.refused("gpu", "host", "delete", "compute1", user="admin")
    answer = user.read("gpu", "host", "delete", "compute1", "--force", user="admin")
    assert answer == {"name": "compute1", "failed_leases": [], "unbound_leases": []}


def test_policies_are_listed_shown_and_set(user):
    listed = {row["Name"]: row for row in user.read("gpu", "policy", "list")}
    assert listed["least-load-fit"]["Default"]
    assert user.read("gpu", "policy", "show", "first-fit")["about"]
    user.do("gpu", "policy", "set", "--default", "energy", user="admin")
    assert user.read("gpu", "policy", "show", "energy")["default"]
    user.do("gpu", "policy", "set", "--reset", user="admin")
    assert not user.read("gpu", "policy", "show", "energy")["default"]


def test_a_check_says_what_would_fit(user):
    assert user.read("gpu", "check", "create", "--cgpus", "8")["fits"]
    check = user.read("gpu", "check", "create", "--cgpus", "9", "--consumer-host", "gpu1")
    assert (check["fits"], check["nearest"]) == (False, "--cgpus=8 --kind=cuda")


def test_ended_leases_say_what_they_used(user):
    for name in ("first", "second"):
        alloc(user, name, *HALF[:2])
    user.do("gpu", "lease", "delete", "first", "--wait")
    (ended,) = user.read("gpu", "lease", "list", "--ended")
    assert (ended["Name"], ended["cGPUs"], ended["Memory MiB"]) == ("first", 1, 4096)
    assert ended["Claimed At"] < ended["Released At"]
    assert ended["GPU Hours"] >= 0
    assert ended["Peak MiB"] is None


def test_usage_of_a_project_and_of_all(user):
    alloc(user)
    used = user.read("gpu", "usage", "show", "--start", "2020-01-01")
    assert (used["project_id"], used["leases"]) == ("member", 1)
    assert user.read("gpu", "usage", "show", user="admin")["leases"] == 0
    words = ("gpu", "usage", "show", "--project", "member", "--start", "2020-01-01")
    assert user.read(*words, user="admin")["leases"] == 1
    rows = user.read("gpu", "usage", "list", "--start", "2020-01-01", user="admin")
    assert [row["Project ID"] for row in rows] == ["member"]
    words = ("gpu", "usage", "list", "--start", "2020-01-02", "--end", "2020-01-01")
    assert "end" in user.refused(*words)
    assert user.read("gpu", "limits", "show")["cgpus"] == {"limit": -1, "used": 1}


def test_a_microversion_can_be_chosen(user):
    option = "--os-gpu-scheduling-api-version"
    user.do(option, "1.1", "gpu", "lease", "list")
    assert user.requests[-1][1] == "gpu-scheduling 1.1"
    alloc(user, "job")
    error = user.refused(option, "1.3", "gpu", "lease", "set", "job", "--name", "x")
    assert "needs microversion 1.4" in error


def test_a_cloud_without_gsaas_is_named(user):
    user.keystone.endpoints.clear()
    error = user.refused("gpu", "lease", "list")
    assert "no public endpoint of type gpu-scheduling in region R" in error


def test_an_api_that_does_not_answer_is_named(user):
    user.keystone.endpoints[0]["url"] = "http://127.0.0.1:1"
    assert "127.0.0.1:1" in user.refused("gpu", "lease", "list")


def test_the_completion_of_the_program_knows_the_commands(user):
    written = user.do("complete", "--shell", "none")
    words = dict(line.strip().split("=", 1) for line in written.splitlines() if "=" in line)
    assert {"host", "lease", "queue", "usage"} <= set(words["cmds_gpu"].strip("'").split())
    assert {"create", "env", "set"} <= set(words["cmds_gpu_lease"].strip("'").split())
    assert "--memory" in words["cmds_gpu_lease_create"]


def test_the_module_that_every_command_loads_imports_nothing_of_the_others():
    program = (
        "import sys; before = set(sys.modules); import gsaasclient.osc.plugin;"
        "print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) <= {"gsaasclient", *sys.stdlib_module_names}


def test_the_program_of_the_shell_lists_the_commands():
    program = Path(sys.executable).with_name("openstack")
    done = subprocess.run(
        [program, "gpu", "lease", "create", "--help"], capture_output=True, text=True, check=True
    )
    assert "usage: openstack gpu lease create" in done.stdout


def test_the_commands_of_the_tenants_guide_do_what_it_says(user):
    for words in tenant_guide.commands():
        administrative = words[:2] == ["gpu", "host"]
        here = [word.replace("gpu3", "gpu2") for word in without_names(words)]
        user.do(*here, user="admin" if administrative else "member")
    (lease,) = user.read("gpu", "lease", "list", "--status", "RELEASED")
    assert (lease["Name"], lease["cGPUs"], lease["Memory MiB"]) == ("training-2", 2, 1024)


def without_names(words: list[str]) -> list[str]:
    """Return *words* without the options whose values other services would have to know."""
    kept = []
    for before, word in itertools.pairwise(["", *words]):
        if not {before, word} & {"--image", "--flavor", "--network"}:
            kept.append(word)
    return kept


def test_the_tenants_guide_names_every_command():
    named = {name.replace(" ", "_") for name in tenant_guide.named()}
    group = entry_points(group="openstack.gpu_scheduling.v1")
    assert named == {command.name for command in group} - {"gpu_policy_set", "gpu_usage_list"}
