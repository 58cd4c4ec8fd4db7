# SPDX-License-Identifier: Apache-2.0
"""The command line against the real API, on loopback: commands, their output and their exit statuses."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from wcwidth import wcswidth

from gsaas.api import launch
from gsaasclient import Credentials
from gsaasclient.cli import leases

UNKNOWN = "5f0d3a52-8a5e-4c5c-9a1f-0f8d5a2c7b61"


def test_a_launch_waits_and_prints_the_lease_and_the_next_commands(desk):
    status, out, err = desk.type("-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
    (lease,) = desk.read("list")
    assert (status, err) == (0, "")
    assert lease["status"] == "ACTIVE"
    assert lease["cgpus"]["memory_mb"] == 2048
    for shown in (
        lease["id"],
        lease["server"]["id"],
        "ACTIVE",
        "cGPU  masked address      MiB  mode",
        "   0  169.254.71.1:8308  2048  shared",
        "   1  169.254.71.2:8308  2048  shared",
        "address  10.0.0.5\n",
        f"gsaas env {lease['name']} ",
        f"gsaas -t -id={lease['name']} ",
    ):
        assert shown in out


def test_a_note_with_the_name_of_a_network_does_not_control_the_terminal(desk):
    """Any project may share a network with any other."""
    desk.world.cloud.defaults = {"\x1b[2Jmine": ""}
    _, _, err = desk.type("-l", "-ncgpus=1")
    assert "note: chosen: \ufffd[2Jmine\n" in err
    assert "\x1b" not in err


def test_how_long_the_phases_of_a_launch_took_is_shown_later(desk):
    _, answer, _ = desk.type("-l", "-ncgpus=1", "-name=web")
    _, shown, _ = desk.type("show", "web")
    assert ("took" in answer, "took" in shown) == (False, True)


def test_a_lease_is_called_by_its_name_unless_another_one_has_it_or_it_needs_quotes(desk):
    assert "gsaas -t -id=web " in desk.type("-l", "-ncgpus=1", "-name=web")[1]
    for name in ("web", "my web"):
        _, out, _ = desk.type("-l", "-ncgpus=1", f"-name={name}")
        (newest, *_) = desk.read("list", "-sort=created_at:desc")
        assert f"gsaas env {newest['id']} " in out
        assert f"gsaas env {newest['id']} " in desk.type("show", newest["id"])[1]


def test_a_launch_in_json_is_the_lease_alone(desk):
    lease = desk.read("-l", "-ncgpus=1", "-name=web")
    assert lease["name"] == "web"
    assert lease["status"] == "ACTIVE"
    assert lease["devices"][0]["memory_mb"] == 8192


def test_options_of_the_vm_reach_the_api_as_novas_fields(desk, tmp_path):
    script = tmp_path / "boot.sh"
    script.write_bytes(b"#!/bin/sh\n\xff")
    desk.read("-l", "-ncgpus=1", "-nowait", "-name=web", "-image=debian")
    network, other = str(uuid.uuid4()), str(uuid.uuid4())
    status, _, err = desk.type(
        *("-l", "-ncgpus=1", "-name=all", "-image=debian", "-flavor=m1", "-key=mine"),
        *(f"-network={network}", f"-network={other}", f"-userdata={script}"),
    )
    assert status == 0
    assert desk.world.cloud.asked[-1] == {
        "name": "all",
        "imageRef": "debian",
        "flavorRef": "m1",
        "key_name": "mine",
        "networks": [{"uuid": network}, {"uuid": other}],
        "user_data": base64.b64encode(b"#!/bin/sh\n\xff").decode(),
    }
    assert "note: flavorRef: ignored by this cloud" in err


def test_a_launch_that_does_not_fit_prints_the_reason_and_the_nearest_request(desk):
    desk.read("-l", "-ncgpus=6")
    before = desk.world.rows()
    status, out, err = desk.type("-l", "-ncgpus=3")
    assert (status, out) == (3, "")
    assert err.startswith("gsaas: ")
    assert "GPUs it left out" in err
    assert "this would fit now: -ncgpus=2\n" in err
    assert "request req-" in err
    assert desk.world.rows() == before


def test_a_vm_that_the_cloud_refuses_is_refused(desk):
    status, out, err = desk.type("-l", "-ncgpus=1", "-image=nope")
    assert (status, out) == (1, "")
    assert err.startswith("gsaas: there is no image nope\n")


def test_what_a_vm_needs_is_said_at_once_with_the_options_and_what_there_is_to_choose(desk):
    desk.world.cloud.missing = [
        {"field": "imageRef", "names": ["debian", "ubuntu"], "more": 7},
        {"field": "flavorRef", "names": ["small"], "more": 0},
        {"field": "networks", "names": [], "more": 0},
    ]
    status, out, err = desk.type("-l", "-ncgpus=1")
    assert (status, out) == (1, "")
    assert err.startswith(
        "gsaas: the VM needs an image, a flavor and a network, and this cloud has no default for your project; to "
        "choose from:\n"
        "  -image    debian, ubuntu and 7 more\n"
        "  -flavor   small\n"
        "  -network  none that your project can use: make one, or ask your operator\n"
    )
    _, _, err = desk.type("-l", "-ncgpus=1", "-image=debian", f"-network={uuid.uuid4()}")
    assert err.startswith("gsaas: the VM needs a flavor, and this cloud")


def test_nowait_returns_while_the_vm_boots(desk):
    desk.world.engine.idle = True
    assert desk.read("-l", "-ncgpus=1", "-nowait")["status"] == "CLAIMED"


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("-l", "-ncgpus=1", f"-policy={'x' * 65}"), '-policy is "xxx'),
        (("-l", "-ncgpus=1", "-name=a\tb"), '-name is "a\\tb"'),
        (("check", "-ncgpus=9999999999"), "-ncgpus is 9999999999; it must be a whole number"),
        (("list", "-status=DONE"), '-status is "DONE"; it must be one of'),
        (("list", "-sort=size"), '-sort is "size"; it must be one of'),
    ],
)
def test_a_value_that_the_api_refuses_is_named_by_its_option_and_ends_with_2(desk, words, begins):
    status, _, err = desk.type(*words)
    assert (status, err.startswith(f"gsaas: {begins}")) == (2, True), err


def test_a_launch_that_fails_prints_its_fault(desk, monkeypatch):
    engine = desk.world.engine
    engine.idle = True

    def fail(_seconds: float) -> None:
        with_id = engine.woken[-1][0]
        engine.fail(with_id, "boot", "the host went away")

    monkeypatch.setattr(leases, "POLL", 0)
    monkeypatch.setattr(leases, "sleep", fail)
    status, out, err = desk.type("-l", "-ncgpus=1")
    assert status == 1
    assert "ERROR" in out
    assert err.endswith("failed at boot: the host went away\n")


def test_an_interrupted_launch_names_the_commands_that_show_and_end_it(desk, monkeypatch):
    desk.world.engine.idle = True

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(leases, "POLL", 0)
    monkeypatch.setattr(leases, "sleep", interrupt)
    status, _, err = desk.type("-l", "-ncgpus=1")
    (lease,) = desk.read("list")
    assert status == 130
    assert f"gsaas show {lease['name']} " in err
    assert f"gsaas -t -id={lease['name']} " in err


def test_a_launch_that_loses_the_api_names_the_lease(desk, monkeypatch):
    desk.world.engine.idle = True
    request = leases.Client.request

    def request_to_a_dead_api(client, method, path, *more, **named):
        if method == "GET":
            client = leases.Client(Credentials("http://127.0.0.1:1", "t"))
        return request(client, method, path, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(leases.Client, "request", request_to_a_dead_api)
        status, _, err = desk.type("-l", "-ncgpus=1")
    (lease,) = desk.read("list")
    assert status == 1
    assert lease["id"] in err


@pytest.mark.parametrize("naming", ["lease", "VM", "name"])
def test_a_lease_is_ended_by_its_id_its_vms_id_or_its_name(desk, naming):
    lease = desk.read("-l", "-ncgpus=2", "-name=web")
    wanted = {"lease": lease["id"], "VM": lease["server"]["id"], "name": "web"}[naming]
    status, out, err = desk.type("-t", f"-id={wanted}")
    assert (status, out, err) == (
        0,
        f"lease {lease['id']}  RELEASED, cGPUs released: 2\n",
        "",
    )
    assert desk.read("list") == []
    assert desk.read("gpus")["totals"]["idle"] == 8


@pytest.mark.parametrize("naming", ["lease", "VM"])
def test_a_lease_is_found_by_the_beginning_of_its_id_or_its_vms(desk, naming):
    lease = desk.read("-l", "-ncgpus=1")
    desk.read("-l", "-ncgpus=1")
    wanted = {"lease": lease["id"], "VM": lease["server"]["id"]}[naming]
    assert desk.read("show", wanted[:12].upper())["id"] == lease["id"]
    status, _, err = desk.type("show", wanted[:3])
    assert (status, err) == (
        1,
        f"gsaas: there is no lease or VM {wanted[:3]}; gsaas list shows yours\n",
    )


def test_the_beginning_of_several_ids_finds_none_of_them(desk, monkeypatch):
    ids = [f"feedbeef-0000-4000-8000-00000000000{number}" for number in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(launch, "uuid", SimpleNamespace(uuid4=iter(ids).__next__))
        for _ in ids:
            desk.read("alloc", "-ncgpus=1")
    status, _, err = desk.type("-t", "feedbeef")
    assert status == 1
    assert (
        f"the ids of 2 leases begin with feedbeef; type more of the one that you mean: {', '.join(ids)}"
        in err
    )


def test_a_name_goes_before_the_beginning_of_an_id(desk):
    first = desk.read("-l", "-ncgpus=1")
    second = desk.read("-l", "-ncgpus=1", f"-name={first['id'][:8]}")
    assert desk.read("show", first["id"][:8])["id"] == second["id"]


@pytest.mark.slow
def test_a_released_lease_is_shown_by_its_name_unless_another_has_it(desk):
    ids = []
    for _ in range(2):
        ids.append(desk.read("-l", "-ncgpus=1", "-name=web")["id"])
        desk.type("-t", "web")
    shown = desk.read("show", "web")
    assert (shown["id"], shown["status"]) == (ids[1], "RELEASED")
    assert desk.read("show", ids[0][:13])["id"] == ids[0]
    living = desk.read("-l", "-ncgpus=1", "-name=web")["id"]
    assert desk.read("show", "web")["id"] == living
    desk.type("-t", living)
    assert desk.type("-t", "web")[0] == 1  # what is over cannot be ended


@pytest.mark.slow
def test_several_leases_are_ended_and_one_that_cannot_be_stops_none(desk):
    for name in "abc":
        desk.read("-l", "-ncgpus=1", f"-name={name}")
    status, out, err = desk.type("-t", "a", "nothing", "c")
    assert status == 1
    assert out.count("RELEASED, cGPUs released: 1\n") == 2
    assert err == (
        "gsaas: nothing: there is no lease or VM nothing; gsaas list shows yours\n"
        "gsaas: 1 of 3 leases could not be ended\n"
    )
    assert [lease["name"] for lease in desk.read("list")] == ["b"]
    again = [desk.read("-l", "-ncgpus=1", f"-name={name}")["id"] for name in "xy"]
    assert [lease["id"] for lease in desk.read("-t", "x", "y")] == again


def test_a_lease_that_is_named_twice_is_ended_once_and_no_other_in_its_stead(desk):
    other = desk.read("-l", "-ncgpus=1")
    called = other["id"][:8]
    named = desk.read("-l", "-ncgpus=1", f"-name={called}")
    assert [lease["id"] for lease in desk.read("-t", called, called)] == [named["id"]]
    assert [lease["id"] for lease in desk.read("list")] == [other["id"]]


def test_a_name_of_several_leases_ends_none(desk):
    ids = [desk.read("-l", "-ncgpus=1", "-name=web")["id"] for _ in range(2)]
    status, _, err = desk.type("-t", "-id=web")
    assert status == 1
    assert all(lease_id in err for lease_id in ids)
    assert len(desk.read("list")) == 2


@pytest.mark.parametrize("wanted", ["nothing", "a/../b", UNKNOWN, "?x=1&y", "ü"])
def test_a_lease_that_does_not_exist_is_refused(desk, wanted):
    status, _, err = desk.type("show", wanted)
    assert status == 1
    assert "there is no lease or VM" in err


def test_a_lease_of_another_project_does_not_exist(desk):
    lease = desk.read("-l", "-ncgpus=1")
    desk.sit("stranger")
    assert desk.type("-t", f"-id={lease['id']}")[0] == 1
    desk.sit("member")
    assert desk.read("show", lease["id"])["status"] == "ACTIVE"


def test_a_lease_cannot_be_ended_twice(desk):
    lease = desk.read("-l", "-ncgpus=1")
    assert desk.type("-t", lease["id"])[0] == 0
    status, _, err = desk.type("-t", lease["id"])
    assert status == 1
    assert "released" in err


@pytest.mark.parametrize("name", ["training", "x" * 255, "名" * 85])
def test_the_list_fits_in_80_columns_and_has_the_age_of_leases(desk, name):
    lease = desk.read("-l", "-ncgpus=1", "-poolmem=2G", f"-name={name}")
    with desk.world.database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE leases SET created_at = '2020-01-01 00:00:00.000000'")
    heading, row = desk.type("list")[1].splitlines()
    assert heading.split() == ["lease", "name", "status", "cGPUs", "each", "VM", "age"]
    assert wcswidth(row) <= 80
    short, shown, status, _, _, _, vm, age = row.split()
    assert (short, status, vm) == (lease["id"][:8], "ACTIVE", lease["server"]["id"][:8])
    assert name.startswith(shown.removesuffix("…"))
    assert age.endswith("d")
    assert int(age[:-1]) > 2000
    assert lease["id"] in desk.type("list", "-c", "id")[1]
    assert desk.type("list", "-f", "value")[1].startswith(f"{lease['id']} {name} ACTIVE 1 2048 ")


@pytest.mark.slow
def test_the_list_is_read_page_by_page(desk):
    desk.world.conf.set_override("max_limit", 3, "api")
    names = [f"lease-{n}" for n in range(8)]
    for name in names:
        desk.read("alloc", "-ncgpus=1", "-poolmem=64", "-mode=shared", f"-name={name}")
    assert [lease["name"] for lease in desk.read("list")] == names
    desk.sit("admin")
    assert len(desk.read("gpus")["gpus"]) == 8
    assert len(desk.read("endpoints")) == 3
    assert [lease["name"] for lease in desk.read("list", "-all")] == names


def test_an_empty_list_names_the_command_that_launches(desk):
    assert "gsaas -l" in desk.type("list")[1]


def test_released_leases_are_listed_when_asked_for(desk):
    lease = desk.read("-l", "-ncgpus=1")
    desk.type("-t", lease["id"])
    assert [found["id"] for found in desk.read("list", "-status=RELEASED")] == [lease["id"]]


def test_show_prints_the_events_and_hides_the_gpus_from_tenants(desk):
    lease = desk.read("-l", "-ncgpus=1")
    _, out, _ = desk.type("show", lease["id"])
    assert "activate" in out
    assert "GPU-" not in out
    desk.sit("admin")
    _, out, _ = desk.type("show", lease["id"])
    assert "GPU-" in out
    assert "192.168.50." in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_environment_can_be_evaluated_by_a_shell(desk):
    lease = desk.read("-l", "-ncgpus=2", "-poolmem=2048", "-mode=shared")
    status, out, _ = desk.type("env", lease["id"])
    assert status == 0
    script = f"{out}\nenv -0"
    done = subprocess.run(["/bin/sh", "-c", script], env={}, capture_output=True, check=True)
    seen = dict(entry.split(b"=", 1) for entry in done.stdout.split(b"\0") if entry)
    wanted = json.loads(desk.type("env", lease["id"], "-json")[1])
    assert wanted["RCUDA_DEVICE_COUNT"] == "2"
    assert {k: seen[k.encode()].decode() for k in wanted} == wanted
    assert "RCUDA_DEVICE_COUNT=2\n" in desk.type("env", lease["id"], "-dotenv")[1]
    assert desk.type("env", lease["id"], "-dotenv", "-json")[0] == 2


def test_a_check_prints_whether_the_request_fits_and_launches_nothing(desk):
    before = desk.world.rows()
    status, out, _ = desk.type("check", "-ncgpus=8")
    assert (status, out.splitlines()[0]) == (0, "it fits: gsaas -l -ncgpus=8")
    status, out, _ = desk.type("check", "-ncgpus=9")
    assert status == 4
    assert out.startswith("it can never fit: ")
    assert desk.world.rows() == before


def test_tenants_see_models_and_totals_and_administrators_see_gpus(desk):
    totals = "  GPUs    8 on 2 hosts, 8 idle\n  memory  65536 of 65536 MiB free\n"
    models = desk.type("models")[1]
    assert models == (
        "  model         kind  capability   MiB  GPUs  idle  MiB free  largest share\n"
        "  Quadro M4000  cuda           -  8192     8     8     65536           8192\n"
    )
    assert desk.type("gpus")[1] == f"{models}\n{totals}"
    assert desk.type("hosts")[1] == totals
    assert desk.read("gpus").keys() == {"totals", "models"}
    desk.sit("admin")
    assert desk.type("models")[1] == models
    assert "GPU-0001-0  gpu1" in desk.type("gpus")[1]
    assert desk.read("gpus").keys() == {"totals", "gpus"}
    assert "compute1" in desk.type("hosts")[1]


@pytest.mark.parametrize(("noun", "name"), [("gpus", "GPU-0001-0"), ("hosts", "gpu1")])
def test_an_administrator_takes_a_gpu_or_host_out_of_service_and_back(desk, noun, name):
    desk.sit("admin")
    status, out, _ = desk.type(noun, f"-disable={name}", "-reason=new fans")
    assert status == 0
    assert "disabled: new fans" in out
    assert desk.read("gpus")["totals"]["idle"] < 8
    assert desk.type(noun, f"-enable={name}")[0] == 0
    assert desk.read("gpus")["totals"]["idle"] == 8


def test_values_of_the_totals_are_printed_for_scripts_as_ever(desk):
    assert desk.type("gpus", "-f", "value")[1] == "8\n2\n8\n65536\n65536\n"
    assert desk.type("gpus", "-c", "idle", "-f", "json")[1] == '{\n  "idle": 8\n}\n'


def test_an_administrator_may_name_a_gpu_by_the_beginning_that_a_list_prints(desk):
    desk.sit("admin")
    status, out, _ = desk.type("gpus", "-disable=GPU-0002-1…", "-reason=ECC errors")
    assert (status, "GPU-0002-1: disabled: ECC errors" in out) == (0, True)
    assert [gpu["uuid"] for gpu in desk.read("gpus")["gpus"] if gpu["disabled"]] == ["GPU-0002-1"]
    assert desk.type("gpus", "-enable=GPU-0002-1")[0] == 0
    status, _, err = desk.type("gpus", "-disable=GPU-0002")
    assert (status, "the ids of 4 GPUs begin with GPU-0002; type more" in err) == (1, True)
    status, _, err = desk.type("gpus", "-disable=GPU-")
    assert (status, "there is no GPU 'GPU-'" in err) == (1, True)
    assert desk.read("gpus")["totals"]["idle"] == 8


def test_models_have_columns_to_pick(desk):
    words = ("models", "-c", "model", "-c", "idle", "-f", "csv")
    assert desk.type(*words)[1] == "model,idle\nQuadro M4000,8\n"


def test_an_administrator_removes_a_host_that_is_gone(desk):
    desk.sit("admin")
    status, _, err = desk.type("hosts", "-forget=gpu1")
    assert status == 1
    assert "so it still runs" in err
    assert desk.read("hosts", "-forget=gpu1", "-force") == {
        "name": "gpu1",
        "failed_leases": [],
        "unbound_leases": [],
    }
    assert desk.read("gpus")["totals"]["gpus"] == 4
    status, out, _ = desk.type("hosts", "-forget=gpu2", "-force")
    assert (status, out) == (0, "gpu2 is forgotten\n")


@pytest.mark.parametrize(
    "words", [["-force"], ["-forget=gpu1", "-disable=gpu1"], ["-forget=gpu1", "-enable=gpu1"]]
)
def test_forget_is_refused_with_options_that_contradict_it(desk, words):
    desk.sit("admin")
    before = desk.world.rows()
    assert desk.type("hosts", *words)[0] == 2
    assert desk.world.rows() == before


def test_a_tenant_cannot_take_a_gpu_out_of_service(desk):
    status, _, err = desk.type("gpus", "-disable=GPU-0001-0")
    assert status == 1
    assert "request req-" in err


def test_an_administrator_sees_endpoints_and_all_users_see_policies(desk):
    assert re.search(r"least-load-fit +default +the GPU with", desk.type("policies")[1])
    assert re.search("least-load-fit +GSaaS", desk.type("policies", "-c=name", "-c=source")[1])
    desk.sit("admin")
    assert "gpu1" in desk.type("endpoints", "gpu1")[1]
    assert desk.read("endpoints", "gpu1")["problems"] == []


def test_a_policy_is_shown_with_its_description(desk):
    status, out, _ = desk.type("policy", "energy")
    assert status == 0
    assert out.startswith("energy: fill one GPU completely before the next one is used.")
    assert "The price is speed" in out
    assert "NGS, ECO" in out
    assert desk.read("policy")["name"] == "least-load-fit"


def test_an_administrator_sets_and_resets_the_default_policy(desk):
    status, _, err = desk.type("policy", "-default=energy")
    assert (status, "gsaas:policies:update" in err) == (1, True)
    desk.sit("admin")
    assert "default (set by an admin)" in desk.type("policy", "-default=energy")[1]
    listed = desk.type("policies")[1]
    assert re.search(r"energy +default \(set by an admin\)", listed)
    assert re.search(r"least-load-fit +configured default", listed)
    assert desk.read("policy", "-reset")["name"] == "least-load-fit"
    status, _, err = desk.type("policy", "-default=best-guess")
    assert (status, "use one of best-fit" in err) == (1, True)


@pytest.mark.parametrize("words", [["-default=energy", "-reset"], ["energy", "-reset"]])
def test_showing_a_policy_and_setting_one_do_not_go_together(desk, words):
    assert desk.type("policy", *words)[0] == 2


def test_requirements_are_printed_as_the_options_that_give_them(desk):
    status, out, _ = desk.type(
        "check", "-ncgpus=1", "-model=quadro m4000", "-hosts=one", "-host=gpu1"
    )
    assert status == 0
    assert "gsaas -l -ncgpus=1 -hosts=one -model='quadro m4000' -host=gpu1" in out
    status, out, _ = desk.type("check", "-ncgpus=2", "-model=M4000", "-capability=9.0")
    assert status != 0
    assert "without -capability: -ncgpus=2 -model=M4000" in out
    status, _, err = desk.type("-l", "-ncgpus=2", "-model=A100")
    assert status != 0
    assert "no GPU of this cloud is of model A100; the models are Quadro M4000" in err
    assert "this would fit now, without -model: -ncgpus=2" in err


def test_a_token_that_the_api_does_not_accept_is_explained(desk):
    desk.credentials.write_text(desk.credentials.read_text().replace("token-of", "no-token-of"))
    status, _, err = desk.type("list")
    assert status == 1
    assert "the token of your credentials" in err


def test_an_api_that_does_not_answer_is_named(desk):
    desk.credentials.write_text(json.dumps({"url": "http://127.0.0.1:1", "token": "t"}))
    status, _, err = desk.type("list")
    assert status == 1
    assert err.startswith("gsaas: the GSaaS API at http://127.0.0.1:1 does not answer: ")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"url": 1, "token": "t"}', '{"url": "ftp://x", "token": "t"}']
    + [f'{{"url": "http://{host}", "token": "t"}}' for host in ("", "x:port", "[x")],
)
def test_invalid_credentials_are_named(desk, content):
    desk.credentials.write_text(content)
    status, _, err = desk.type("list")
    assert status == 1
    assert str(desk.credentials) in err
    assert "unexpected" not in err


def test_credentials_that_other_users_can_read_are_refused(desk):
    desk.credentials.chmod(0o640)
    status, _, err = desk.type("list")
    assert status == 1
    assert f"chmod 600 {desk.credentials}" in err


def test_a_file_of_credentials_that_is_not_there_is_named(desk):
    desk.credentials.unlink()
    status, _, err = desk.type("list")
    assert status == 1
    for name in (str(desk.credentials), "GSAAS_CREDENTIALS", "OS_CLOUD"):
        assert name in err


def test_an_invalid_line_is_refused_before_any_request(desk):
    desk.credentials.unlink()
    status, out, err = desk.type("-l", "-ncgpus=2.5")
    assert (status, out) == (2, "")
    assert err == (
        "gsaas: -ncgpus needs a whole number of at least 1, not '2.5'\n  see: gsaas launch --help\n"
    )


def test_a_missing_file_of_user_data_is_named(desk):
    status, _, err = desk.type("-l", "-ncgpus=1", "-userdata=/nowhere")
    assert status == 2
    assert "-userdata=/nowhere cannot be read" in err


def test_exec_needs_a_vm_on_this_machine(desk, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    lease = desk.read("-l", "-ncgpus=1")
    status, _, err = desk.type("exec", lease["id"], "--", "true")
    assert status == 1
    assert "not a network namespace of this machine" in err
    assert desk.type("exec", lease["id"])[0] == 2


def test_an_unexpected_error_is_one_sentence_and_debug_shows_the_traceback(desk, monkeypatch):
    monkeypatch.setattr(leases, "list_all", lambda *_: 1 // 0)
    status, out, err = desk.type("list")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "GSAAS_DEBUG=1" in err
    monkeypatch.setenv("GSAAS_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        desk.type("list")


def test_output_that_is_not_read_to_its_end_is_no_error(desk):
    program = Path(sys.executable).with_name("gsaas")
    done = subprocess.run(
        ["/bin/sh", "-c", f"{program} --help | true; {program} list -f json | head -c 1"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("[", "")


def test_requested_help_goes_to_standard_output_and_an_empty_line_gets_it_on_standard_error(desk):
    assert desk.type("--help")[0] == 0
    status, out, err = desk.type()
    assert (status, out) == (2, "")
    assert err.startswith("usage: gsaas -l")


def test_alloc_prints_what_a_shell_can_eval_and_nothing_else(desk):
    status, out, err = desk.type("alloc", "-ncgpus=2", "-poolmem=1024", "-mode=shared")
    assert (status, err) == (0, "")
    (lease,) = desk.read("list")
    probe = f'{out}\necho "$GSAAS_LEASE $RCUDA_DEVICE_COUNT $RCUDA_RESERVED_GPU_MEMORY_1"'
    done = subprocess.run(["sh", "-euc", probe], capture_output=True, text=True, check=True)
    assert done.stdout == f"{lease['id']} 2 1024\n"


def test_the_consumer_is_this_user_on_this_host_unless_options_name_others(desk):
    desk.type("alloc", "-ncgpus=1")
    desk.type("alloc", "-ncgpus=1", "-on=gpu2", "-uid=1000")
    desk.type("alloc", "-ncgpus=1", "-on=gpu2", "-uid=any")
    assert [lease["consumer"] for lease in desk.read("list")] == [
        {"host": socket.gethostname(), "uid": os.getuid(), "address": None},
        {"host": "gpu2", "uid": 1000, "address": None},
        {"host": "gpu2", "uid": None, "address": None},
    ]


def test_a_refused_alloc_prints_nothing_to_evaluate(desk):
    status, out, err = desk.type("alloc", "-ncgpus=99")
    assert status != 0
    assert out == ""
    assert "99 whole GPUs cannot be had" in err


def test_release_ends_the_lease_of_the_shell(desk, monkeypatch):
    answer = desk.read("alloc", "-ncgpus=1")
    monkeypatch.setenv("GSAAS_LEASE", answer["environment"]["GSAAS_LEASE"])
    status, out, _ = desk.type("release")
    assert status == 0
    assert out == f"lease {answer['lease']['id']}  RELEASED, cGPUs released: 1\n"
    assert desk.read("list") == []


def test_release_needs_a_lease(desk, monkeypatch):
    monkeypatch.delenv("GSAAS_LEASE", raising=False)
    status, _, err = desk.type("release")
    assert status == 2
    assert "GSAAS_LEASE is not set" in err


def test_a_lease_without_a_vm_is_shown_with_its_real_addresses(desk):
    desk.type("alloc", "-ncgpus=1", "-name=job", "-on=lab7")
    _, out, _ = desk.type("show", "job")
    assert "used on  lab7" in out
    assert "real address" in out
    assert "masked address" not in out
    status, _, err = desk.type("exec", "job", "--", "true")
    assert status == 1
    assert "has no VM" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("list",),
        ("show", "job"),
        ("queue",),
        ("check", "-ncgpus=1"),
        ("gpus",),
        ("hosts",),
        ("endpoints",),
        ("endpoints", "gpu1"),
        ("env", "job"),
        ("policies",),
        ("policy",),
        ("limits",),
        ("usage",),
        ("settings",),
        ("hosts", "-enable=gpu1"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("caller", ["member", "admin"])
def test_every_list_and_resource_can_be_read_by_programs(desk, caller, words):
    desk.sit(caller)
    desk.type("alloc", "-ncgpus=1", "-name=job")
    status, out, err = desk.type(*words, "-f=json")
    if status == 1:
        assert "request req-" in err  # for administrators only
        return
    document = json.loads(out)
    again = yaml.safe_load(desk.type(*words, "-f=yaml")[1])
    assert (type(again), len(again)) == (type(document), len(document))
    status, out, err = desk.type(*words, "-f=csv")
    assert (status, err) == (0, "")
    heading, *rows = csv.reader(io.StringIO(out))
    assert all(len(row) == len(heading) for row in rows)
    for name in heading:
        status, out, _ = desk.type(*words, "-f=json", f"-c={name}")
        picked = json.loads(out)
        assert status == 0
        assert all(
            list(row) == [name] for row in (picked if isinstance(picked, list) else [picked])
        )
    assert desk.type(*words, "-f=value")[0] == 0


def test_columns_of_leases_are_picked_and_ordered(desk):
    lease = desk.read("alloc", "-ncgpus=2", "-name=job")["lease"]
    assert desk.type("list", "-f=value", "-c=name", "-c=id")[1] == f"job {lease['id']}\n"
    assert desk.type("list", "-c=cGPUs", "-c=lease")[1].split() == [
        *("cGPUs", "lease", "2", lease["id"])
    ]
    assert desk.type("show", "job", "-f=value", "-c=status", "-c=mode")[1] == "ACTIVE\nexclusive\n"


def test_alloc_prints_picked_columns_of_its_lease_instead_of_the_environment(desk):
    status, out, _ = desk.type("alloc", "-ncgpus=2", "-f=value", "-c=id", "-c=cgpus")
    (lease,) = desk.read("list")
    assert (status, out) == (0, f"{lease['id']}\n2\n")


def test_an_environment_is_a_list_of_variables_for_programs(desk):
    desk.type("-l", "-ncgpus=2", "-name=web")
    variables = json.loads(desk.type("env", "web", "-json")[1])
    assert json.loads(desk.type("env", "web", "-f=json")[1]) == variables
    rows = csv.reader(io.StringIO(desk.type("env", "web", "-f=csv")[1]))
    assert list(rows) == [["name", "value"], *map(list, variables.items())]
    assert desk.type("env", "web", "-f=json", "-dotenv")[0] == 2


def test_an_unknown_column_is_refused_before_anything_is_done(desk):
    status, out, err = desk.type("-l", "-ncgpus=1", "-c=nope")
    assert (status, out) == (2, "")
    assert err.startswith("gsaas: there is no column nope; the columns are id, name, status, ")
    assert desk.read("list") == []


def test_alloc_and_top_print_their_documents_as_yaml(desk):
    lease = yaml.safe_load(desk.type("alloc", "-ncgpus=1", "-f=yaml")[1])["lease"]
    assert [one["id"] for one in yaml.safe_load(desk.type("top", "-f=yaml")[1])["leases"]] == [
        lease["id"]
    ]
