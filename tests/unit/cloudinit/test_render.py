# SPDX-License-Identifier: Apache-2.0
"""The one call that others make."""

from __future__ import annotations

import base64
import stat

import pytest
import yaml

from gsaas.cloudinit.render import user_data
from tests.support.cloud_init import CloudInit

ENV = {
    "RCUDA_DEVICE_COUNT": "2",
    "RCUDA_DEVICE_0": "169.254.71.1:0",
    "RCUDA_DEVICE_1": "169.254.71.2:0",
    "LD_LIBRARY_PATH": "/opt/rCUDA/lib",
}
PREFIX = "169.254.71.0/24"


def files(config: dict) -> dict[str, dict]:
    return {entry["path"]: entry for entry in config["write_files"]}


def test_cloud_init_writes_our_files_next_to_the_callers(cloud_init: CloudInit):
    caller = (
        b"#cloud-config\nwrite_files: [{path: /etc/motd, content: hello}]\nruncmd: [[reboot]]\n"
    )

    found = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX, caller)))

    assert found.log == []
    assert cloud_init.faults(found.config) == []
    assert found.config["runcmd"] == [["reboot"]]
    assert list(files(found.config)) == [
        "/etc/motd",
        "/etc/profile.d/gsaas.sh",
        "/etc/environment.d/99-gsaas.conf",
        "/etc/systemd/system.conf.d/90-gsaas.conf",
        "/usr/local/sbin/gsaas-route",
        "/var/lib/cloud/scripts/per-boot/gsaas-route",
        "/etc/systemd/system/gsaas-route.service",
        "/etc/systemd/system/multi-user.target.d/90-gsaas.conf",
    ]
    assert found.files.keys() == {"boothooks/gsaas-boothook"}


def test_ours_takes_no_list_from_the_image_or_the_clouds_vendor_data(cloud_init: CloudInit):
    """Lists of user data hide those of lower layers, so we use only one, to write files."""
    found = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX)))

    assert found.config.keys() == {"write_files"}


def test_our_part_passes_cloud_inits_schema(cloud_init: CloudInit):
    found = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX)))
    ours = yaml.safe_load(found.parts[-1].content)

    assert cloud_init.faults(ours) == []


def test_what_is_run_can_be_run_and_what_is_read_can_be_read(cloud_init: CloudInit):
    found = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX)))

    for path, entry in files(found.config).items():
        mode = int(entry["permissions"], 8)
        assert mode & stat.S_IROTH
        assert bool(mode & stat.S_IXUSR) == entry["content"].startswith("#!/bin/sh\n"), path


def test_options_reach_what_they_are_for(cloud_init: CloudInit):
    text = user_data(ENV, "198.18.0.0/28", interface_wait=7, system_services=False)

    found = cloud_init.read(base64.b64decode(text))

    script = files(found.config)["/usr/local/sbin/gsaas-route"]["content"]
    assert "prefix=198.18.0.0/28\nwait=7\n" in script
    assert "/etc/systemd/system.conf.d/90-gsaas.conf" not in files(found.config)
    assert "systemctl" not in found.files["boothooks/gsaas-boothook"]


@pytest.mark.parametrize("prefix", ["169.254.71.1/24", "fe80::/64", "x; reboot", ""])
def test_only_an_ipv4_prefix_is_a_masked_prefix(prefix: str):
    with pytest.raises(ValueError, match=r"."):
        user_data(ENV, prefix)
