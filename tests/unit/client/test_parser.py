# SPDX-License-Identifier: Apache-2.0
"""How command lines are parsed: every published one, and frequent mistakes."""

from __future__ import annotations

import pytest

from gsaasclient.cli.cgpus import from_options, to_options
from gsaasclient.cli.commands import COMMANDS
from gsaasclient.cli.parser import FOREVER, HelpRequested, UsageError, parse


def read(line: str):
    return parse(line.split(), COMMANDS)


def refusal(line: str) -> str:
    """Return the message with which *line* is refused, by the parser or by a rule between options."""
    with pytest.raises(UsageError) as caught:
        command, values = read(line)
        if command.name in ("launch", "check"):
            from_options(values)
    return str(caught.value)


PUBLISHED = {
    "-l -ncgpus=2": {"count": 2, "mode": "exclusive", "locality": "any"},
    "-l -ncgpus=2 -poolmem=2048 -mode=shared": {
        "count": 2,
        "mode": "shared",
        "locality": "any",
        "memory_mb": 2048,
    },
    "-l -ncgpus=8 -poolmem=4096 -mode=shared -locality=local": {
        "count": 8,
        "mode": "shared",
        "locality": "local",
        "memory_mb": 4096,
    },
    "-l -ncgpus=2 -kind=cpu": {
        "count": 2,
        "kind": "cpu",
        "mode": "exclusive",
        "locality": "any",
    },
    "-l -ncgpus=2 -locality=local": {"count": 2, "mode": "exclusive", "locality": "local"},
}


@pytest.mark.parametrize("line", PUBLISHED)
def test_published_launches_are_parsed(line):
    command, values = read(line)
    assert command.name == "launch"
    assert from_options(values) == PUBLISHED[line]


@pytest.mark.parametrize("line", PUBLISHED)
def test_options_are_made_again_from_the_apis_cgpus(line):
    _, values = read(line)
    cgpus = from_options(values)
    _, again = read(f"-l {to_options(cgpus)}")
    assert from_options(again) == cgpus


@pytest.mark.parametrize(
    "line",
    [
        "-l -ncgpus=2 -poolmem=2048 -mode=shared",
        "-l -ncgpus=2 -poolmem=2G -mode=shared",
        "-l -ncgpus=2 -poolmem=2048MiB -mode=shared",
        "-l -ncgpus 2 -poolmem 2048 -mode shared",
        "--l --ncgpus=2 --poolmem=2048 --mode=shared",
        "--launch --ncgpus 2 --poolmem 2048 --mode shared",
        "-mode=shared -ncgpus=2 -l -poolmem=2048",
        "launch -ncgpus=2 --poolmem 2048 -mode=shared",
    ],
)
def test_equivalent_lines_are_parsed_alike(line):
    assert read(line)[1] == read("launch -ncgpus=2 -poolmem=2048 -mode=shared")[1]


@pytest.mark.parametrize("line", ["-l -ncgpus=2 -poolmem=2G", "check -ncgpus=2 -poolmem=2048"])
def test_memory_without_a_mode_means_shared(line):
    assert from_options(read(line)[1]) == {
        "count": 2,
        "mode": "shared",
        "locality": "any",
        "memory_mb": 2048,
    }


@pytest.mark.parametrize(
    "line", ["-t -id=web", "-t -id web", "-t web", "terminate web", "--t --id=web"]
)
def test_the_lease_to_end_is_named_by_option_or_alone(line):
    command, values = read(line)
    assert (command.name, values.id) == ("terminate", ["web"])


@pytest.mark.parametrize("line", ["-t a b", "-t -id=a -id=b", "-t a -id=b", "release a b"])
def test_several_leases_can_be_named_to_be_ended(line):
    assert read(line)[1].id == ["a", "b"]


def test_every_option_of_a_launch_is_parsed():
    _, values = read(
        "-l -ncgpus=1 -image=i -flavor=f -network=n1 -network=n2 -name=web -key=k -userdata=u"
    )
    assert vars(values) == {
        "ncgpus": 1,
        "kind": None,
        "mode": None,
        "poolmem": None,
        "locality": "any",
        "policy": None,
        "model": None,
        "capability": None,
        "hosts": "any",
        "host": None,
        "image": "i",
        "flavor": "f",
        "network": ["n1", "n2"],
        "name": "web",
        "key": "k",
        "userdata": "u",
        "for": None,
        "until": None,
        "wait": None,
        "priority": None,
        "reservation": None,
        "movable": None,
        "nowait": False,
        "f": "table",
        "c": [],
        "remainder": [],
    }


@pytest.mark.parametrize("line", ["list -f json", "list -format=json", "list --format json"])
def test_the_format_has_a_short_and_a_long_name(line):
    assert read(line)[1].f == "json"


def test_a_value_may_hold_an_equals_sign():
    assert read("-l -ncgpus=1 -name=a=b")[1].name == "a=b"


def test_words_after_two_dashes_are_the_command_to_run():
    command, values = read("exec web -- ls -l --help")
    assert (command.name, values.id, values.remainder) == ("exec", "web", ["ls", "-l", "--help"])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("-l -ncgpus=2.5", "-ncgpus needs a whole number of at least 1, not '2.5'"),
        ("-l -ncgpus=0", "-ncgpus needs a whole number of at least 1, not '0'"),
        ("-l -ncgpus -2", "-ncgpus needs a whole number of at least 1, not '-2'"),
        ("-l -ncgpus=two", "-ncgpus needs a whole number of at least 1, not 'two'"),
        ("-l -ncgpus=1_0", "-ncgpus needs a whole number of at least 1, not '1_0'"),
        ("-l -ncgpus=٢", "-ncgpus needs a whole number of at least 1, not '٢'"),
        (f"-l -ncgpus={'9' * 5000}", f"-ncgpus is too large: {'9' * 18}…"),
        ("-l -ncgpus=", "-ncgpus needs a value: -ncgpus=N"),
        ("-l -ncgpus", "-ncgpus needs a value: -ncgpus=N"),
        ("-l -ncgpus -mode=shared", "-ncgpus needs a value: -ncgpus=N"),
        ("-l -name -mode=shared", "-name needs a value: -name=NAME"),
        ("-l", "-ncgpus is needed: how many cGPUs"),
        (
            "-l -ncgpus=2 -mode=shared",
            "-poolmem is needed with -mode=shared: the GPU memory of each cGPU, such as 2G",
        ),
        (
            "-l -ncgpus=2 -poolmem=10m",
            "-poolmem is an amount of memory, and M is MiB: did you mean 10M?",
        ),
        (
            "-l -ncgpus=2 -wait=10M",
            "-wait is a duration such as 10m, 2h, 1h30m, 3d or 90 (seconds), not '10M'; did you mean 10m?",
        ),
        (
            "reserve -ncgpus=2 -end=tomorrowx",
            "-end is a date or time such as tomorrow 9:00, 2026-12-01T09:00+01:00 or +2h, not 'tomorrowx'",
        ),
        (
            "-l -ncgpus=2 -capability=new",
            "-capability is a CUDA compute capability such as 8.0, not 'new'",
        ),
        ("usage -start=soon", "-start is a date or time such as tomorrow 9:00,"),
        ("list -changes-since=soon", "-changes-since is a date or time such as tomorrow 9:00,"),
        ("top -interval=fast", "-interval is a duration such as 10m,"),
        ("settings -interval=fast", "-interval is a duration such as 10m,"),
        ("slurm reconcile -grace=long", "-grace is a duration such as 10m,"),
        (
            "-l -ncgpus=2 -poolmem=2048 -mode=exclusive",
            "-poolmem is not valid with -mode=exclusive: an exclusive cGPU has all memory of its GPU",
        ),
        ("-l -ncgpus=2 -mode=share", "-mode is exclusive or shared, not 'share'"),
        ("-l -ncgpus=2 -kind=gpu", "-kind is cuda or cpu, not 'gpu'"),
        ("-l -ncgpus=2 -locality=far", "-locality is any, local or remote, not 'far'"),
        ("-l -ncgpus=2 -ncgpus=3", "-ncgpus is given twice"),
        ("-l -t", "-l (launch) and -t (terminate) cannot be combined"),
        ("-l -ncgpu=2", "gsaas launch has no option -ncgpu; did you mean -ncgpus?"),
        ("-l -loc=local", "gsaas launch has no option -loc"),
        ("-l -lname=a", "gsaas launch has no option -lname; did you mean -name?"),
        ("-l -nowait=1 -ncgpus=1", "-nowait takes no value"),
        ("-l web", "gsaas launch takes no argument 'web'"),
        ("-l 2", "gsaas launch takes no argument '2'; did you mean -ncgpus=2?"),
        (
            "-l=2",
            "no command is given: -l launches, -t terminates, and any other command, such as list, is the first word",
        ),
        (
            "-ncgpus=2",
            "no command is given: -l launches, -t terminates, and any other command, such as list, is the first word",
        ),
        ("lsit", "there is no command 'lsit'; did you mean list?"),
        ("xyzzy", "there is no command 'xyzzy'"),
        (
            "delete web",
            "there is no command 'delete'; did you mean gsaas -t -id=ID or gsaas release?",
        ),
        ("delete", "there is no command 'delete'; did you mean gsaas -t -id=ID or gsaas release?"),
        ("create", "there is no command 'create'; did you mean gsaas -l -ncgpus=N?"),
        ("lease list", "there is no command 'lease'; did you mean gsaas list or gsaas show ID?"),
        (
            "server create",
            "there is no command 'server'; did you mean gsaas -l -ncgpus=N or gsaas list?",
        ),
        ("gpu list", "there is no command 'gpu'; did you mean gpus?"),
        ("quota show", "there is no command 'quota'; did you mean gsaas limits?"),
        ("list -o json", "gsaas list has no option -o; did you mean -f=json?"),
        ("list -o=csv", "gsaas list has no option -o; did you mean -f=csv?"),
        ("list -o", "gsaas list has no option -o; did you mean -f?"),
        ("list -o xml", "gsaas list has no option -o; did you mean -f?"),
        ("list --json", "gsaas list has no option -json; did you mean -f=json?"),
        ("show web --yaml", "gsaas show has no option -yaml; did you mean -f=yaml?"),
        ("list --columns name", "gsaas list has no option -columns; did you mean -c?"),
        ("list --all-projects", "gsaas list has no option -all-projects; did you mean -all?"),
        ("-l -ncgpus=1 -shared", "gsaas launch has no option -shared; did you mean -mode=shared?"),
        ("-l -ncgpus=1 -2", "gsaas launch has no option -2"),
        (
            "--os-cloud=mine list",
            "there is no option --os-cloud; set OS_CLOUD in the environment instead",
        ),
        (
            "list --os-project-name mine",
            "gsaas list has no option -os-project-name; set OS_PROJECT_NAME in the environment instead",
        ),
        ("list -l", "gsaas list has no option -l"),
        ("show a b", "-id is given twice"),
        ("exec vm ls", "put -- before the command: -- ls …"),
        ("exec vm ls -l", "put -- before the command: -- ls …"),
        ("run -ncgpus=1 sh", "put -- before the command: -- sh …"),
        ("list -- ls", "gsaas list runs no command: nothing may follow --"),
        ("list -f xml", "-f is table, json, csv, value or yaml, not 'xml'"),
    ],
)
def test_an_invalid_line_is_refused_in_one_sentence(line, sentence):
    assert refusal(line).startswith(sentence)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", None),
        ("help", None),
        ("-h", None),
        ("-help", None),
        ("--help", None),
        ("help list", "list"),
        ("list --help", "list"),
        ("-l -help", "launch"),
        ("-t -h", "terminate"),
        ("exec web -h -- ls", "exec"),
        ("show -id --help", "show"),
        ("-l -ncgpus -h", "launch"),
        ("--help list", None),
    ],
)
def test_help_is_requested_anywhere_on_a_line(line, command):
    with pytest.raises(HelpRequested) as wanted:
        read(line)
    assert wanted.value.command == command


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("-ncgpus=1", None),
        ("-ncgpus=1 -wait", FOREVER),
        ("-wait -ncgpus=1", FOREVER),
        ("-ncgpus=1 -wait=30", 30),
        ("-wait 30 -ncgpus=1", 30),
        ("-wait 10m -ncgpus=1", 600),
        ("-wait=1h30m -ncgpus=1", 5400),
    ],
)
def test_an_option_may_do_without_a_value_and_takes_a_number_after_a_space(words, seconds):
    assert read(f"-l {words}")[1].wait == seconds


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_time_to_wait_is_at_least_a_second(value):
    with pytest.raises(UsageError, match=r"-wait is (a duration such as|at least one second)"):
        read(f"-l -ncgpus=1 -wait={value}")


@pytest.mark.parametrize(
    ("line", "option", "time"),
    [
        ("usage -start=2026-10-01T00:00:00+02:00", "start", "2026-09-30T22:00:00Z"),
        ("reserve -ncgpus=1 -end=2040-01-31T17:00:00Z", "end", "2040-01-31T17:00:00Z"),
    ],
)
def test_a_time_is_sent_in_utc(line, option, time):
    assert getattr(read(line)[1], option) == time


@pytest.mark.parametrize(("value", "seconds"), [("0", 0), ("600", 600), ("10m", 600)])
def test_the_grace_of_a_lease_without_a_job_may_be_none(value, seconds):
    assert read(f"slurm reconcile -grace={value}")[1].grace == seconds


def test_a_priority_may_be_below_0():
    assert read("-l -ncgpus=1 -priority -5")[1].priority == -5
