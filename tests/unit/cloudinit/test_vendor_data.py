# SPDX-License-Identifier: Apache-2.0
"""The vendor data of a server that GSaaS does not make writes what user data of GSaaS writes."""

from __future__ import annotations

import base64
import re
import stat
import subprocess
from pathlib import Path

from gsaas.cloudinit import boot
from gsaas.cloudinit.render import user_data, vendor_data
from tests.support.cloud_init import CloudInit

ENV = {
    "RCUDA_DEVICE_COUNT": "1",
    "RCUDA_DEVICE_0": "169.254.71.1:0",
    "LD_LIBRARY_PATH": "/opt/rCUDA/lib",
}
PREFIX = "169.254.71.0/24"


def test_cloud_init_takes_it_for_one_boothook_and_nothing_else(cloud_init: CloudInit):
    """A cloud-config of vendor data would lose its lists to the tenant's own."""
    text = vendor_data(ENV, PREFIX)
    found = cloud_init.read(text.encode())
    assert found.log == []
    assert found.config == {}
    assert [part.type for part in found.parts] == ["text/cloud-boothook"]
    assert len(found.files) == 1


def test_it_writes_every_file_that_user_data_writes(cloud_init: CloudInit):
    launched = cloud_init.read(base64.b64decode(user_data(ENV, PREFIX)))
    text = vendor_data(ENV, PREFIX)
    for entry in launched.config["write_files"]:
        assert f"mv -f {entry['path']}.gsaas {entry['path']}\n" in text
    (hook,) = launched.files.values()
    rest = hook.partition("# Written by GSaaS.\n")[2]
    assert rest in text


def test_the_files_arrive_byte_for_byte_with_their_modes_also_a_second_time(tmp_path: Path):
    contents = {
        "plain/one": ("0644", "A='$B' \"%s\" \\n\n"),
        "with space/two": ("0755", "#!/bin/sh\nexec true\n"),
        "three": ("0644", "no newline"),
    }
    files = [
        {"path": str(tmp_path / name), "permissions": mode, "content": content}
        for name, (mode, content) in contents.items()
    ]
    for _ in range(2):
        subprocess.run(["sh", "-eu"], input=boot.files_script(files), text=True, check=True)
    for name, (mode, content) in contents.items():
        written = tmp_path / name
        assert written.read_text() == content
        assert stat.S_IMODE(written.stat().st_mode) == int(mode, 8)
    assert not list(tmp_path.rglob("*.gsaas"))


def test_it_is_a_script_that_a_shell_understands():
    text = vendor_data(ENV, PREFIX, system_services=False)
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    assert not re.search(r"set-environment", text)
