# SPDX-License-Identifier: Apache-2.0
"""The answers of an operator, and the steps and files that follow from them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gsaas import conf
from gsaas.setup import answers, machine, plan, texts
from gsaas.setup.answers import BadAnswer, Compute, Controller, GpuHost
from gsaas.setup.machine import File, Unit, User
from gsaas.setup.services import Database

SAMPLES = machine.samples(Path("/nowhere"))
ANSWERS = {
    Controller: {
        "url": "https://gpu.example.org",
        "auth_url": "https://keystone.example.org/v3",
        "bus": "controller",
        "gpu_network": "192.0.2.0/24",
    },
    Compute: {
        "bus": "controller:5673",
        "bus_password": "long-enough",
        "host_key": "also-long-enough",
        "gpu_network": "192.0.2.0/24",
    },
    GpuHost: {
        "bus": "one,two:5673",
        "bus_password": "long-enough",
        "host_key": "also-long-enough",
        "gpu_address": "192.0.2.11",
    },
}
NAMES = {
    Controller: ("controller", "gsaas.conf"),
    Compute: ("compute", "gsaas-rodvr.conf"),
    GpuHost: ("gpu-host", "gsaas-monitor.conf"),
}
KINDS = [Controller, Compute, GpuHost]


def read(kind: type, **changes: str):
    return answers.read(kind, ANSWERS[kind] | changes, "here", iter_of_secrets().__next__)


def iter_of_secrets():
    return (f"secret-number-{number}" for number in range(9))


def steps(kind: type, prefix: str = "/opt/gsaas", **changes: str) -> list:
    return plan.steps(NAMES[kind][0], read(kind, **changes), SAMPLES, prefix)


def files(kind: type, prefix: str = "/opt/gsaas", **changes: str) -> dict[str, File]:
    found = steps(kind, prefix, **changes)
    return {step.path: step for step in found if isinstance(step, File)}


def test_what_nobody_answers_has_a_default_or_is_made():
    controller = read(Controller)
    assert controller.internal_url == controller.url
    assert controller.database == "controller"
    assert controller.driver == "rcuda"
    secrets = [controller.bus_secret, controller.bus_password]
    secrets += [controller.database_password, controller.keystone_password]
    assert secrets == [f"secret-number-{number}" for number in range(4)]
    assert read(Compute).host == "here"
    assert read(Compute, host="compute1").bus_account == "gsaas-compute1"


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_is_missing_is_named_at_once_with_what_it_is(kind: type):
    with pytest.raises(BadAnswer) as refused:
        answers.read(kind, {}, "here", str)
    for name in ANSWERS[kind]:
        assert f"{name} (" in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "name", "answer", "said"),
    [
        (
            Controller,
            "url",
            "gpu.example.org",
            "url is a URL such as https://gpu.example.org, not ",
        ),
        (Controller, "bus", "rabbit://one", "bus is HOST or HOST:PORT, or several with commas"),
        (
            Controller,
            "database",
            "a b",
            "database is HOST or HOST:PORT of MariaDB or MySQL, or the",
        ),
        (
            Controller,
            "gpu_network",
            "192.0.2.1",
            "gpu_network is IPv4 networks with commas between",
        ),
        (Controller, "gpu_network", "192.0.2.1/24", "gpu_network is IPv4 networks with commas"),
        (
            Controller,
            "listen",
            "9870",
            "listen is ADDRESS:PORT, such as 127.0.0.1:9870, not '9870'",
        ),
        (
            Controller,
            "cafile",
            "cloud.crt",
            "cafile is the absolute path of a file, or nothing, not",
        ),
        (Compute, "host", "-x", "host is 1 to 200 letters, digits, dots, hyphens and underscores"),
        (
            GpuHost,
            "gpu_address",
            "gpu1",
            "gpu_address is an IPv4 address, such as 192.0.2.11, not ",
        ),
        (GpuHost, "bus_account", "a\nb", "bus_account is a name of letters, digits, dots, hyphens"),
    ],
)
def test_an_answer_that_is_not_allowed_is_named_with_what_is(
    kind: type, name: str, answer: str, said: str
):
    with pytest.raises(BadAnswer) as refused:
        read(kind, **{name: answer})
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("secret", ["short", "with'quote", "$(reboot)", "two words of it"])
def test_a_secret_that_would_need_quotes_is_refused_and_not_repeated(secret: str):
    with pytest.raises(BadAnswer, match="at least 8 letters, digits") as refused:
        read(Compute, bus_password=secret)
    assert secret not in str(refused.value)


def test_the_password_in_the_url_of_a_database_is_not_repeated():
    with pytest.raises(BadAnswer, match="the URL of a database that is there") as refused:
        read(Controller, database="mysql+pymysql://gsaas:a$b-secret@db/gsaas")
    assert "secret" not in str(refused.value)


def test_each_answer_that_may_be_several_may_be_a_list_in_a_file():
    several = 'bus = ["one", "two:5673"]\nbus_secret = ["new-secret", "old-secret"]\n'
    given = answers.of_role("controller", tomllib.loads(several))
    known = read(Controller, **given)
    assert (known.bus, known.bus_secret) == ("one,two:5673", "new-secret,old-secret")


def test_a_file_may_have_the_answers_of_several_roles():
    table = tomllib.loads(
        'bus = "b"\ndriver = "tvm"\ngpu_network = ["192.0.2.0/24", "198.51.100.0/24"]\n'
        '[compute]\nhost_key = "of-compute"\n[gpu-host]\nhost_key = "of-the-gpus"\n'
    )
    networks = "192.0.2.0/24,198.51.100.0/24"
    compute = {"bus": "b", "gpu_network": networks, "host_key": "of-compute"}
    assert answers.of_role("compute", table) == compute
    assert answers.of_role("gpu-host", table) == {
        "bus": "b",
        "driver": "tvm",
        "host_key": "of-the-gpus",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('colour = "red"', "there is no answer 'colour'; there are bus, "),
        ('[compute]\nurl = "https://a"', r"there is no answer 'url' in \[compute\]; there are bus"),
        ("bus = 5672", "bus must be text in quotation marks"),
        ("bus = [5672]", "bus must be text in quotation marks"),
        ('compute = "yes"', r"\[compute\] is a table of the answers for it alone"),
    ],
)
def test_what_no_role_is_asked_is_refused_in_a_file(text: str, said: str):
    with pytest.raises(BadAnswer, match=said):
        answers.of_role("compute", tomllib.loads(text))


@pytest.mark.parametrize("kind", KINDS)
def test_answers_that_are_kept_are_the_same_when_they_are_read(kind: type):
    role, _ = NAMES[kind]
    known = read(kind)
    kept = files(kind)[texts.kept(role)]
    assert kept.mode == 0o600
    given = answers.of_role(role, tomllib.loads(kept.text))
    assert answers.read(kind, given, "elsewhere", iter(()).__next__) == known


@pytest.mark.parametrize("kind", KINDS)
def test_gsaas_reads_the_configuration_without_problems(kind: type, tmp_path: Path):
    _, name = NAMES[kind]
    file = files(kind, **({"driver": "lupine"} if kind is Controller else {}))[f"/etc/gsaas/{name}"]
    path = tmp_path / name
    path.write_text(file.text)
    found = conf.load(files=[str(path)])
    assert conf.problems(found) == []
    if kind is Controller:
        assert found.bus.secrets == ["secret-number-0"]
        assert found.nova.notification_url == "rabbit://gsaas:secret-number-1@controller:5672/"
        assert found.remoting.driver == "lupine"
    else:
        assert found.bus.host_keys == ["also-long-enough"]
        assert found.host == "here"
    assert file.mode == 0o640
    assert file.group == ("gsaas-monitor" if kind is GpuHost else "gsaas")


@pytest.mark.parametrize(
    ("kind", "process"),
    [(Controller, "gsaas-engine"), (Compute, "gsaas-rodvr"), (GpuHost, "gsaas-monitor")],
)
def test_options_of_the_operator_count_before_those_of_setup(
    kind: type, process: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    _, name = NAMES[kind]
    monkeypatch.setattr(conf, "FOLDER", tmp_path)
    (tmp_path / f"{name}.d").mkdir()
    (tmp_path / f"{name}.d/own.conf").write_text("[gpu_network]\nprefixes = 198.51.100.0/24\n")
    made = files(kind)
    (tmp_path / name).write_text(made[f"/etc/gsaas/{name}"].text)
    unit = made[f"/etc/systemd/system/{process}.service"].text
    _, *options = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)[1].split()
    found = conf.load([one.replace("/etc/gsaas", str(tmp_path)) for one in options], prog=process)
    assert found.gpu_network.prefixes == ["198.51.100.0/24"]
    assert found.bus.secrets or found.bus.host_keys


def test_a_cluster_of_message_buses_is_one_url():
    assert texts.bus_url("one,two:5673", "me", "secret", "gsaas") == (
        "rabbit://me:secret@one:5672,me:secret@two:5673/gsaas"
    )


def test_a_database_that_is_there_is_taken_as_it_is_named():
    url = "postgresql+psycopg://gsaas:x@db/gsaas"
    assert f"connection = {url}\n" in files(Controller, database=url)["/etc/gsaas/gsaas.conf"].text
    (database,) = [step for step in steps(Controller, database=url) if isinstance(step, Database)]
    assert not database.is_made


def test_the_api_listens_where_it_is_told_and_the_programs_are_those_of_this_installation():
    made = files(Controller, "/srv/gsaas", listen="192.0.2.1:9870")
    server = made["/etc/gsaas/gsaas-api-uwsgi.ini"].text
    assert "\nhttp-socket = 192.0.2.1:9870\n" in server
    assert "\nvirtualenv = /srv/gsaas\n" in server
    engine = made["/etc/systemd/system/gsaas-engine.service"].text
    assert "\nExecStart=/srv/gsaas/bin/gsaas-engine\n" in engine


@pytest.mark.parametrize(("kind", "agent"), [(Compute, "rodvr"), (GpuHost, "monitor")])
def test_an_agent_reads_its_own_file_alone(kind: type, agent: str):
    """Where a controller is as well, gsaas.conf has secrets with which no agent starts."""
    unit = files(kind)[f"/etc/systemd/system/gsaas-{agent}.service"]
    (command,) = re.findall(r"^ExecStart=(.*)$", unit.text, re.MULTILINE)
    path = f"/etc/gsaas/gsaas-{agent}.conf"
    assert command == f"/opt/gsaas/bin/gsaas-{agent} --config-file {path} --config-dir {path}.d"


@pytest.mark.parametrize("kind", KINDS)
def test_systemd_accepts_the_units(kind: type, tmp_path: Path):
    """It checks that their programs exist."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uwsgi", "gsaas-manage", "gsaas-engine", "gsaas-rodvr", "gsaas-monitor"):
        (programs / name).symlink_to(sys.executable)
    units = [
        file for path, file in files(kind, str(tmp_path)).items() if path.startswith(plan.UNITS)
    ]
    for unit in units:
        (tmp_path / Path(unit.path).name).write_text(unit.text)
    paths = [tmp_path / Path(unit.path).name for unit in units]
    verify = ["systemd-analyze", "verify", "--man=no", *paths]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_step_needs_is_made_before_it(kind: type):
    found = steps(kind)
    users = [step.name for step in found if isinstance(step, User)]
    assert users == (["gsaas", "gsaas-monitor"] if kind is GpuHost else ["gsaas"])
    for number, step in enumerate(found):
        before = found[:number]
        if isinstance(step, File) and step.group != "root":
            assert User(step.group) in before
        if isinstance(step, Unit):
            assert set(step.reads) <= {one for one in before if isinstance(one, File)}
    assert isinstance(found[-1], Unit)


@pytest.mark.parametrize("kind", KINDS)
def test_no_step_says_a_secret(kind: type):
    for step in steps(kind):
        assert "secret-number" not in str(step)
        assert "long-enough" not in str(step)
