"""The process itself: how it starts, stops, refuses and cleans up."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator

import pytest

from tests.kernel.standalone.cloud import Cloud, ip, namespaces, ruleset

pytestmark = pytest.mark.kernel


@pytest.fixture
def home() -> Iterator[str]:
    """A network namespace to run in, with things in it that somebody else owns."""
    name = f"t{os.getpid()}home"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in (
            f"ip -n {name} link set lo up",
            f"ip -n {name} link add gpu0 type bridge",
            f"ip netns exec {name} nft add table ip rodvr",
            f"ip netns exec {name} nft add chain ip rodvr theirs",
        ):
            subprocess.run(command.split(), check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def everything_in(netns: str) -> dict[str, object]:
    """Links, addresses, routes, rules and sysctls of a namespace."""
    inside = ["ip", "netns", "exec", netns]
    sysctl = subprocess.run(
        [*inside, "sysctl", "-a", "-r", r"^net\.ipv4\.(ip_forward|conf)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {
        "addresses": ip("-n", netns, "address"),
        "routes": ip("-n", netns, "route", "show", "table", "all"),
        "neighbours": ip("-n", netns, "neighbour"),
        "rules": ruleset(netns),
        "sysctl": sysctl.stdout,
    }


def ours(cloud: Cloud) -> list[str]:
    return [name for name in namespaces() if name.startswith(cloud.prefix)]


def test_nothing_is_made_where_it_runs_and_clean_leaves_nothing_anywhere(home, make_cloud):
    before = everything_in(home)
    cloud = make_cloud(home)
    cloud.start()
    cloud.launch(count=2)
    assert len(ours(cloud)) == 5
    assert everything_in(home) == before
    cloud.stop()
    assert cloud.run("--clean").returncode == 0
    assert ours(cloud) == []
    assert not cloud.state_dir.exists()
    assert everything_in(home) == before


def test_clean_can_be_said_twice_and_before_anything_was_made(make_cloud):
    cloud = make_cloud()
    for _ in range(2):
        done = cloud.run("--clean")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not cloud.state_dir.exists()


def test_clean_takes_up_where_a_kill_left_it(make_cloud):
    cloud = make_cloud()
    cloud.start()
    cloud.launch(count=1)
    cloud.kill()
    assert cloud.run("--clean").returncode == 0
    assert ours(cloud) == []


def test_stopping_leaves_vms_and_rules_and_starting_takes_them_up(cloud):
    lease = cloud.launch(count=1)
    mappings = cloud.mappings()
    cloud.stop()
    assert cloud.mappings() == mappings
    assert cloud.vms() == [cloud.vm(lease)]
    cloud.start()
    cloud.check_reach(cloud.lease(lease))


def test_a_second_process_on_the_same_state_directory_is_refused_and_so_is_clean(cloud):
    for more in ((), ("--clean",)):
        done = cloud.run(*more)
        assert done.returncode == 1
        assert f"another gsaas-standalone uses {cloud.state_dir}" in done.stderr
    cloud.check_reach(cloud.launch(count=1))


def test_without_the_capabilities_one_sentence_says_what_is_needed(make_cloud):
    cloud = make_cloud()
    done = cloud.run(wrapper=("setpriv", "--bounding-set", "-sys_admin"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "CAP_SYS_ADMIN" in done.stderr
    assert "root" in done.stderr
    assert not cloud.state_dir.exists()


def test_secrets_are_for_their_owner_only(cloud):
    secrets = ["tokens.json", "credentials.json", "credentials-demo.json", "gsaas.db"]
    for name in secrets:
        mode = stat.S_IMODE((cloud.state_dir / name).stat().st_mode)
        assert mode == 0o600, name


def test_tokens_stay_the_same_from_one_start_to_the_next(cloud):
    tokens = (cloud.state_dir / "tokens.json").read_text()
    cloud.stop()
    cloud.start()
    assert (cloud.state_dir / "tokens.json").read_text() == tokens


def test_with_a_wrong_token_nothing_is_answered(cloud):
    assert cloud.call("GET", "/v1/leases", token="x" * 43)[0] == 401


def test_a_namespace_that_is_not_ours_is_refused_and_left_alone(make_cloud):
    cloud = make_cloud()
    foreign = f"{cloud.prefix}gpu1"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        done = cloud.run()
        assert done.returncode == 1
        assert f"another program made the network namespace {foreign}" in done.stderr
        assert cloud.run("--clean").returncode == 0
        assert ours(cloud) == [foreign]
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_an_address_in_use_is_refused_before_anything_is_made(cloud, make_cloud):
    url = json.loads((cloud.state_dir / "credentials.json").read_text())["url"]
    other = make_cloud()
    done = other.run(f"--listen={url.removeprefix('http://')}")
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1:" in done.stderr
    assert ours(other) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("hosts = 3", "hosts"),
        ('gpu_network = "192.168.50.0/24"', "no hosts"),
        (
            'gpu_network = "10.1.0.0/24"\n[[hosts]]\nname = "a"\ngpu_address = "10.2.0.1"',
            "10.2.0.1 is not in 10.1.0.0/24",
        ),
    ],
)
def test_an_inventory_that_makes_no_sense_is_refused_with_the_reason(
    make_cloud, tmp_path, text, problem
):
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(text, encoding="utf-8")
    cloud = make_cloud()
    done = cloud.run(f"--inventory={inventory}")
    assert done.returncode == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_directory_or_a_log_that_cannot_be_is_refused_in_a_sentence(make_cloud, tmp_path):
    (tmp_path / "file").touch()
    for option in (f"--state-dir={tmp_path}/file/state", f"--log-file={tmp_path}/file/log"):
        done = make_cloud().run(option)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert "Not a directory" in done.stderr


def test_another_prefix_on_the_same_state_directory_is_refused(cloud):
    cloud.stop()
    done = cloud.run("--prefix=other-")
    assert done.returncode == 1
    assert "was made with another inventory or prefix" in done.stderr
    cloud.start()
