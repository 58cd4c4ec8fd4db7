# SPDX-License-Identifier: Apache-2.0
"""The guest in Glance, and a disk with nothing on it, for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.openstack.bed import files, guest_image, rest
from tests.openstack.bed.settings import EMPTY_IMAGE, IMAGE, STATE
from tests.openstack.bed.work import Unit

EMPTY_DISK = STATE / "empty.raw"
EMPTY_SIZE = 2**20
"""Bytes."""
HARDWARE = {"hw_cdrom_bus": "ide", "hw_rng_model": "virtio", "hw_video_model": "none"}


def units() -> list[Unit]:
    return [Unit("image", needs=("glance", "guest image"), prepare=upload)]


def upload() -> None:
    kernel = _image(f"{IMAGE}-kernel", "aki", guest_image.KERNEL)
    ramdisk = _image(f"{IMAGE}-ramdisk", "ari", guest_image.RAMDISK)
    _image(
        IMAGE,
        "qcow2",
        guest_image.DISK,
        container="bare",
        kernel_id=kernel,
        ramdisk_id=ramdisk,
        os_command_line=guest_image.KERNEL_ARGUMENTS,
        **HARDWARE,
    )
    files.write(EMPTY_DISK, "\0" * EMPTY_SIZE)
    _image(EMPTY_IMAGE, "raw", EMPTY_DISK, container="bare", **HARDWARE)


def _image(
    name: str, disk: str, path: Path, container: str | None = None, **properties: Any
) -> str:
    """Have the file *path* in Glance; return the image's id.

    It remembers what it was made from, so that a guest built anew replaces the one from before.
    """
    cloud = rest.cloud()
    recipe = (guest_image.GUEST / "made-from").read_text()
    wanted = {
        "name": name,
        "disk_format": disk,
        "container_format": container or disk,
        "visibility": "public",
        "made_from": recipe,
        **properties,
    }
    for old in cloud.find("image", "images", name=name):
        if old["status"] != "active" or old.get("made_from") != recipe:
            cloud.call("DELETE", "image", f"images/{old['id']}")
    image = cloud.ensure("image", "images", wanted, name=name)
    if image["status"] == "queued":
        cloud.call("PUT", "image", f"images/{image['id']}/file", path)
    return image["id"]
