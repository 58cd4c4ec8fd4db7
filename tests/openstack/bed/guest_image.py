# SPDX-License-Identifier: Apache-2.0
"""The guest: a small Debian 12 with the real cloud-init, whose user data runs 20 s after the power goes on.

Three files, as Nova boots them without a boot loader: a kernel, an initial RAM disk with one static
program (`guest/init.c`), and a disk with one file system. No loop device and no mount is needed.

In it for the tests: Python 3, `nc`, `curl`, `ip`, `ping`, and ggml's client libraries. The console is the serial port.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from gsaas.remoting.ggml import Ggml
from tests.openstack.bed import commands, files
from tests.openstack.bed.errors import BedError
from tests.openstack.bed.once import once
from tests.openstack.bed.settings import GUEST
from tests.openstack.bed.work import Unit
from tests.support import ggml

KERNEL = GUEST / "vmlinuz"
RAMDISK = GUEST / "initrd"
DISK = GUEST / "disk.qcow2"
KERNEL_ARGUMENTS = "root=/dev/vda rw console=ttyS0 quiet"

RELEASE = "bookworm"
PACKAGES = (
    "systemd-sysv",
    "udev",
    "dbus",
    "kmod",
    "ifupdown",
    "isc-dhcp-client",
    "iproute2",
    "iputils-ping",
    "netcat-openbsd",
    "curl",
    "procps",
    "python3-minimal",
    "python3-cffi-backend",  # python3-cryptography wants it by a name that debootstrap cannot resolve
    "cloud-init",
    "libgomp1",  # for ggml
)
KERNEL_PACKAGE = "linux-image-cloud-amd64"
BOOT_DRIVERS = (
    "virtio",
    "virtio_ring",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "virtio_blk",
)
DRIVERS = (
    *("virtio*", "net_failover", "failover", "af_packet*"),
    *("ext4", "jbd2", "mbcache", "crc*", "isofs", "cdrom", "sr_mod", "fat", "vfat", "nls_*"),
    *("ata_piix", "ata_generic", "libata", "ahci", "libahci", "scsi_mod", "scsi_common"),
)
DISK_SIZE = "700M"
"""Before it is compacted; the flavor's disk may be larger."""

SOURCES = Path(__file__).with_name("guest")
BASE = GUEST / "base.tar.zst"
WORK = GUEST / "work"
ROOT = WORK / "root"


BASE_RECIPE = files.digest([], RELEASE, PACKAGES)
LIBRARIES = ("libggml-base.so", "libggml-rpc.so")
"""Those of ggml that a client needs."""


def units() -> list[Unit]:
    return [
        Unit("ggml", prepare=build_ggml),
        Unit("guest base", prepare=build_base),
        Unit("guest image", needs=("ggml", "guest base"), prepare=build),
    ]


def build_ggml() -> None:
    """Make ggml's libraries, for guests and for the daemons of the CPU host."""
    ggml.built()


def build_base() -> None:
    """Fetch the packages, which takes a minute."""
    once(GUEST / "base.made-from", BASE_RECIPE, _make_base)


def build() -> None:
    """Make the three files, unless they were made from what is here now."""
    made_from = files.digest([*sorted(SOURCES.iterdir()), Path(__file__), Path(ggml.__file__)])
    once(GUEST / "made-from", BASE_RECIPE + made_from, _make)


def _make() -> None:
    shutil.rmtree(WORK, ignore_errors=True)
    ROOT.mkdir(parents=True)
    commands.run("tar", "--zstd", "-xpf", BASE, "-C", ROOT)
    _add_kernel()
    _configure()
    _make_ramdisk()
    _make_disk()
    shutil.rmtree(WORK)


def _make_base() -> None:
    """The packages, kept apart from the rest."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    commands.run(
        *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
        *(RELEASE, ROOT, _mirror()),
        env=dict(os.environ),
        patience=1800,
    )
    unfinished = BASE.with_suffix(".new")
    commands.run("tar", "--zstd", "-cpf", unfinished, "-C", ROOT, ".")
    unfinished.replace(BASE)


def _mirror() -> str:
    """Where this machine gets its own packages from."""
    listed = commands.run(
        *("apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages")
    )
    for line in listed.splitlines():
        codename, _, mirror = line.partition(" ")
        if codename == RELEASE:
            return mirror
    raise BedError(f"apt knows no mirror of {RELEASE}; see /etc/apt/sources.list")


def _add_kernel() -> None:
    """Take kernel and drivers out of their package; nothing of it has to be configured."""
    depends = commands.run("apt-cache", "depends", KERNEL_PACKAGE)
    (package,) = re.findall(r"Depends: (linux-image-\S+)", depends)
    commands.run("apt-get", "-qq", "download", package, env=dict(os.environ), cwd=WORK)
    (archive,) = WORK.glob("linux-image-*.deb")
    commands.run("dpkg-deb", "-x", archive, WORK / "kernel")
    (modules,) = (WORK / "kernel" / "lib" / "modules").iterdir()
    shutil.copy(WORK / "kernel" / "boot" / f"vmlinuz-{modules.name}", KERNEL)
    target = ROOT / "lib" / "modules" / modules.name
    target.mkdir(parents=True)
    for name in DRIVERS:
        for driver in (modules / "kernel").rglob(f"{name}.ko*"):
            copy = target / driver.relative_to(modules)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(driver, copy)
    for index in modules.glob("modules.[bo]*"):
        shutil.copy(index, target)
    commands.run("depmod", "-b", ROOT, modules.name)


def _configure() -> None:
    shutil.copy(SOURCES / "cloud.cfg", ROOT / "etc" / "cloud" / "cloud.cfg.d" / "95_test_bed.cfg")
    (ROOT / "etc" / "fstab").write_text("/dev/vda / ext4 defaults,noatime 0 0\n")
    for name in ("machine-id", "resolv.conf"):
        (ROOT / "etc" / name).write_text("")
    libraries = ROOT / Ggml.library_path.lstrip("/")
    libraries.mkdir(parents=True)
    for name in LIBRARIES:
        shutil.copy(ggml.FOLDER / "ggml/lib" / name, libraries)
    systemd = ROOT / "etc" / "systemd"
    for name in (SOURCES / "masked-units").read_text().split():
        unit = systemd / "system" / name
        unit.unlink(missing_ok=True)
        unit.symlink_to("/dev/null")
    _drop_in(systemd / "journald.conf.d", "[Journal]\nStorage=volatile\nRuntimeMaxUse=8M\n")
    _drop_in(systemd / "system.conf.d", "[Manager]\nDefaultTimeoutStartSec=300s\n")
    for name in ("doc", "man", "locale", "info"):
        shutil.rmtree(ROOT / "usr" / "share" / name, ignore_errors=True)
    shutil.rmtree(ROOT / "var" / "cache" / "apt", ignore_errors=True)
    shutil.rmtree(ROOT / "var" / "lib" / "apt" / "lists", ignore_errors=True)
    # Compiling what cloud-init imports would take the guest longer than running it.
    commands.run("chroot", ROOT, "python3", "-m", "compileall", "-q", "/usr/lib/python3")


def _drop_in(directory: Path, text: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "test-bed.conf").write_text(text)


def _make_ramdisk() -> None:
    tree = WORK / "ramdisk"
    for name in ("dev", "disk", "drivers"):
        (tree / name).mkdir(parents=True)
    for number, name in enumerate(BOOT_DRIVERS):
        for driver in (ROOT / "lib" / "modules").rglob(f"{name}.ko*"):
            copy = tree / "drivers" / f"{number}-{driver.name}"
            shutil.copy(driver, copy)
            if copy.suffix == ".xz":
                commands.run("xz", "-d", copy)
    commands.run("gcc", "-O2", "-static", "-Wall", "-o", tree / "init", SOURCES / "init.c")
    commands.run("mknod", tree / "dev" / "console", "c", "5", "1")
    commands.run(
        *("sh", "-c", 'find . | cpio --quiet -o -H newc | gzip -1 >"$0"', RAMDISK), cwd=tree
    )


def _make_disk() -> None:
    raw = WORK / "disk.raw"
    commands.run("truncate", "-s", DISK_SIZE, raw)
    commands.run(
        *("mke2fs", "-q", "-t", "ext4", "-m", "0", "-O", "^metadata_csum"),
        *("-E", "lazy_itable_init=1,nodiscard", "-d", ROOT, raw),
    )
    commands.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, DISK)
