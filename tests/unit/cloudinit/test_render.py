# SPDX-License-Identifier: Apache-2.0
"""The calls that others make: what is in the user data and the vendor data of a server."""

from __future__ import annotations

import base64
import shlex
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from gsaas.cloudinit import files
from gsaas.cloudinit.render import user_data, vendor_data
from tests.support.cloud_init import CloudInit

ENV = {
    "RCUDA_DEVICE_COUNT": "2",
    "RCUDA_DEVICE_0": "169.254.71.1:0",
    "RCUDA_DEVICE_1": "169.254.71.2:0",
    "LD_LIBRARY_PATH": "/opt/rCUDA/lib",
}
PREFIX = "169.254.71.0/24"
FILES = {
    "/etc/profile.d/gsaas.sh": "0644",
    "/etc/environment.d/99-gsaas.conf": "0644",
    "/etc/systemd/system.conf.d/90-gsaas.conf": "0644",
    "/usr/local/sbin/gsaas-route": "0755",
    "/var/lib/cloud/scripts/per-boot/gsaas": "0755",
    "/etc/systemd/system/gsaas-route.service": "0644",
    "/etc/systemd/system/multi-user.target.d/90-gsaas.conf": "0644",
}
CALLERS = {
    "none": None,
    "files": "#cloud-config\nwrite_files: [{path: /etc/motd, content: hello}]\nruncmd: [[reboot]]\n",
    "an owner that users: makes later": "#cloud-config\nusers: [default, {name: alice}]\n"
    "write_files:\n- {path: /home/alice/.profile, content: x, owner: 'alice:alice'}\n",
    "only commented-out entries": "#cloud-config\nwrite_files:\n#- path: /etc/motd\n",
    "lists that are none": "#cloud-config\nwrite_files: x\nruncmd: 5\nbootcmd: {a: b}\n",
    "another way to merge": "#cloud-config\nwrite_files: []\nmerge_how: dict(replace)+list(replace)\n",
}


def written(hook: str) -> dict[str, str]:
    """The files that a boothook writes, and their modes."""
    words = shlex.split(hook, comments=True)
    puts = [index for index, word in enumerate(words) if word == "put"]
    return {words[index + 1]: words[index + 2] for index in puts}


@pytest.mark.parametrize("caller", CALLERS.values(), ids=CALLERS.keys())
def test_all_files_are_in_a_boothook_and_nothing_is_in_a_list_of_the_tenant(
    cloud_init: CloudInit, caller: str | None
):
    data = caller.encode() if caller else None
    found = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX, data)))

    assert written(found.files["boothooks/gsaas-boothook"]) == FILES
    theirs = yaml.safe_load(caller) if caller else {}
    theirs.pop("merge_how", None)
    assert found.config == theirs
    assert found.log == []


def test_vendor_data_is_the_same_boothook_and_nothing_else(cloud_init: CloudInit):
    """A cloud-config of vendor data would lose its lists to the tenant's own."""
    found = cloud_init.read(vendor_data(ENV, PREFIX).encode())

    assert [part.type for part in found.parts] == ["text/cloud-boothook"]
    assert (found.log, found.config) == ([], {})
    launched = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX)))
    assert list(found.files.values()) == list(launched.files.values())


def test_options_reach_what_they_are_for():
    hook = vendor_data(ENV, "198.18.0.0/28", interface_wait=7, system_services=False)

    assert "prefix=198.18.0.0/28\nwait=7\n" in hook
    assert FILES.keys() - written(hook).keys() == {"/etc/systemd/system.conf.d/90-gsaas.conf"}
    assert "systemctl" not in hook


@pytest.mark.parametrize("prefix", ["169.254.71.1/24", "fe80::/64", "x; reboot", ""])
def test_only_an_ipv4_prefix_is_a_masked_prefix(prefix: str):
    with pytest.raises(ValueError, match=r"."):
        user_data(ENV, prefix)


def test_files_arrive_byte_for_byte_with_their_modes_also_a_second_time(tmp_path: Path):
    wanted = [
        files.File(f"{tmp_path}/plain/one", "A='$B' \"%s\" \\n\n"),
        files.File(f"{tmp_path}/with space/two", "#!/bin/sh\nexec true\n", executable=True),
        files.File(f"{tmp_path}/three", "no newline"),
    ]
    for _ in range(2):
        subprocess.run(["sh", "-eu"], input=files.script(wanted), text=True, check=True)
    for path, content, executable in wanted:
        assert Path(path).read_text() == content
        assert stat.S_IMODE(Path(path).stat().st_mode) == (0o755 if executable else 0o644)
    assert not list(tmp_path.rglob("*.gsaas"))


def test_a_file_that_cannot_be_written_keeps_no_other_from_it(tmp_path: Path):
    (tmp_path / "file").write_text("in the way of a folder")
    wanted = [files.File(f"{tmp_path}/file/one", "x"), files.File(f"{tmp_path}/two", "y")]
    subprocess.run(["sh"], input=files.script(wanted), text=True, stderr=subprocess.DEVNULL)
    assert (tmp_path / "two").read_text() == "y"
