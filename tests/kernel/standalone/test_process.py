# SPDX-License-Identifier: Apache-2.0
"""The process gsaas-standalone: it starts, stops, refuses to start and cleans up as it should."""

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
    """A network namespace to run in, with a link and nftables objects of another program."""
    name = f"t{os.getpid()}home"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for command in (
            f"ip -n {name} link set lo up",
            f"ip -n {name} link add gpu0 type bridge",
            f"ip netns exec {name} nft add table ip rodvr",
            f"ip netns exec {name} nft add chain ip rodvr foreign",
        ):
            subprocess.run(command.split(), check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def network_of(netns: str) -> dict[str, object]:
    """Return links, addresses, routes, rules and sysctls of a namespace."""
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


def namespaces_of(cloud: Cloud) -> list[str]:
    return [name for name in namespaces() if name.startswith(cloud.prefix)]


def test_nothing_is_made_in_the_namespace_of_the_process_and_clean_removes_everything(
    home, make_cloud
):
    before = network_of(home)
    cloud = make_cloud(home)
    cloud.start()
    cloud.launch(count=2)
    assert len(namespaces_of(cloud)) == 5
    assert network_of(home) == before
    cloud.stop()
    assert cloud.run("--clean").returncode == 0
    assert namespaces_of(cloud) == []
    assert not cloud.state_dir.exists()
    assert network_of(home) == before


def test_clean_can_be_repeated_and_run_before_anything_was_made(make_cloud):
    cloud = make_cloud()
    for _ in range(2):
        done = cloud.run("--clean")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not cloud.state_dir.exists()


def test_clean_removes_what_a_killed_process_left(make_cloud):
    cloud = make_cloud()
    cloud.start()
    cloud.launch(count=1)
    cloud.kill()
    assert cloud.run("--clean").returncode == 0
    assert namespaces_of(cloud) == []


def test_vms_and_rules_survive_a_stop_and_the_next_start_takes_them_over(cloud):
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


def test_a_missing_capability_is_named_in_one_sentence(make_cloud):
    cloud = make_cloud()
    done = cloud.run(wrapper=("setpriv", "--bounding-set", "-sys_admin"))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "CAP_SYS_ADMIN" in done.stderr
    assert "root" in done.stderr
    assert not cloud.state_dir.exists()


def test_only_their_owner_can_read_secrets(cloud):
    secrets = ["tokens.json", "credentials.json", "credentials-demo.json", "gsaas.db"]
    for name in secrets:
        mode = stat.S_IMODE((cloud.state_dir / name).stat().st_mode)
        assert mode == 0o600, name


def test_tokens_stay_the_same_from_one_start_to_the_next(cloud):
    tokens = (cloud.state_dir / "tokens.json").read_text()
    cloud.stop()
    cloud.start()
    assert (cloud.state_dir / "tokens.json").read_text() == tokens


def test_a_wrong_token_is_refused(cloud):
    assert cloud.call("GET", "/v1/leases", token="x" * 43)[0] == 401


def test_a_namespace_of_another_program_prevents_the_start_and_is_left_alone(make_cloud):
    cloud = make_cloud()
    foreign = f"{cloud.prefix}gpu1"
    subprocess.run(["ip", "netns", "add", foreign], check=True)
    try:
        done = cloud.run()
        assert done.returncode == 1
        assert f"another program made the network namespace {foreign}" in done.stderr
        assert cloud.run("--clean").returncode == 0
        assert namespaces_of(cloud) == [foreign]
    finally:
        subprocess.run(["ip", "netns", "del", foreign], check=True)


def test_an_address_in_use_is_refused_before_anything_is_made(cloud, make_cloud):
    url = json.loads((cloud.state_dir / "credentials.json").read_text())["url"]
    other = make_cloud()
    done = other.run(f"--listen={url.removeprefix('http://')}")
    assert done.returncode == 1
    assert "cannot listen on 127.0.0.1:" in done.stderr
    assert namespaces_of(other) == []


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
def test_an_invalid_inventory_is_refused_with_the_reason(make_cloud, tmp_path, text, problem):
    inventory = tmp_path / "inventory.toml"
    inventory.write_text(text, encoding="utf-8")
    cloud = make_cloud()
    done = cloud.run(f"--inventory={inventory}")
    assert done.returncode == 1
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unusable_state_directory_or_log_is_refused_in_one_sentence(make_cloud, tmp_path):
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
