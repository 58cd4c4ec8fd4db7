# SPDX-License-Identifier: Apache-2.0
"""An image of VMs as etc/images builds it, with diskimage-builder itself, and machines that boot it.

The build takes minutes and is kept in build/guest. The client in it is LUPINE's own where that can be built
(tests/support/lupine.py), else the fake CUDA driver stands for it. A machine is a container of systemd-nspawn with a
network of its own; cloud-init finds its user data where a NoCloud image has it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.openstack.bed import booted
from tests.support import lupine, quickstart
from tests.support.cuda import driver
from tests.support.nvml import driver as nvml
from tests.support.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
ELEMENTS = REPOSITORY / "etc/images/elements"
FOLDER = REPOSITORY / "build/guest"
BUILDER = "diskimage-builder==3.43.0"
SUDO = """\
#!/bin/bash
# diskimage-builder calls sudo, which root does not need.
while [ $# -gt 0 ]; do
    case $1 in
    -E | -H | -n) shift ;;
    *=*) export "$1" && shift ;;
    *) break ;;
    esac
done
exec "$@"
"""
BOOT = """\
echo $$ >"$1/group/cgroup.procs"
mkdir --parents /run/systemd/nspawn
mount -t tmpfs none /run/systemd/nspawn
mount -t cgroup2 none /sys/fs/cgroup
mount -t overlay -o "lowerdir=$2,upperdir=$1/written,workdir=$1/work" overlay "$1/root"
exec systemd-nspawn --quiet --boot --register=no --keep-unit --capability=all --link-journal=no --console=pipe \\
    --resolv-conf=off --machine=guest --directory="$1/root" --network-namespace-path="/run/netns/$3"
"""
MASKED = ("iscsid.service", "open-iscsi.service", "networking.service")
"""What a container cannot start, and what asks for an address where nobody gives any: each waits a minute."""


class NotBuildable(Exception):
    """It cannot be built here; the text says why."""


def built() -> Path:
    """Return the folder with the files of the image, built once for all tests; raises `NotBuildable`."""
    if os.geteuid() != 0:
        raise NotBuildable("an image is built by root")
    recipe, root = _recipe(), FOLDER / "root"
    stamp = FOLDER / "made-from"
    if stamp.exists() and stamp.read_text() == recipe:
        return root
    shutil.rmtree(FOLDER, ignore_errors=True)
    _middleware(FOLDER / "lupine/build")
    archive = _create()
    root.mkdir()
    _run("tar", "--numeric-owner", "-xpf", archive, "-C", root)
    archive.unlink()
    stamp.write_text(recipe)
    return root


def _middleware(folder: Path) -> None:
    """Have the client's libraries: LUPINE's libcuda.so.1, else the fake driver; for NVML a fake one."""
    folder.mkdir(parents=True)
    try:
        shutil.copy(lupine.built().client / driver.NAME, folder)
    except lupine.NotBuildable:
        driver.build(folder)
    nvml.build(folder)


def _create() -> Path:
    """Type what the page says of the image; return the tar archive that is made instead of a disk."""
    own, work = FOLDER / "bin", FOLDER / "work"
    own.mkdir()
    work.mkdir()
    if shutil.which("sudo") is None:
        (own / "sudo").write_text(SUDO)
        (own / "sudo").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:{own}",
        "GSAAS_GUEST_WHEELS": str(_wheels()),
        "DIB_IMAGE_CACHE": str(work / "cache"),
        "DIB_DEBIAN_SECURITY_MIRROR": "http://deb.debian.org/debian-security",
        "INITRD": "No",  # a container needs none, and making it twice takes a third of the time
        "TMP_DIR": str(work),
    }
    # What diskimage-builder mounts, such as /dev, ends with this process, however that ends.
    alone = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--propagation=private"]
    alone += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*alone, "bash", "-euc", script()],
        env=environment,
        cwd=FOLDER,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=2700,
        check=False,
    )
    shutil.rmtree(work)
    if done.returncode and ("Failed to fetch" in done.stdout or "No matching" in done.stdout):
        raise NotBuildable(f"packages cannot be had: {done.stdout[-500:]}")
    assert done.returncode == 0, done.stdout[-3000:]
    return FOLDER / "debian-12-lupine.tar"


def script() -> str:
    """Return the commands of the page, which here make an archive of what the disk would have."""
    text = quickstart.blocks("3. The image of VMs")[0].script
    for before, after in (
        ("/opt/gsaas/share/gsaas", str(REPOSITORY)),
        ("install diskimage-builder", f"install -q {BUILDER}"),
        ("disk-image-create -o", "disk-image-create --no-tmpfs -t tar -o"),
        (" vm ", " "),
    ):
        assert before in text
        text = text.replace(before, after)
    return text


def _wheels() -> Path:
    """Build the command gsaas, and what it needs, as wheels."""
    folder = FOLDER / "wheels"
    # pip writes into the folders of its sources.
    sources = FOLDER / "sources"
    for name in ("client", "launcher"):
        ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
        shutil.copytree(REPOSITORY / name, sources / name, ignore=ignored)
    constraints = REPOSITORY / "constraints.txt"
    _run(
        *(sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"),
        *("-c", constraints, "--wheel-dir", folder, sources / "client", sources / "launcher"),
    )
    return folder


def _recipe() -> str:
    """Return what tells whether an image was made from what is here now."""
    found = hashlib.sha256(f"{script()} {lupine.COMMIT}".encode())
    folders = [ELEMENTS, REPOSITORY / "client/gsaasclient", REPOSITORY / "launcher"]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    for file in sorted(files):
        if "__pycache__" not in file.parts and "build" not in file.parts:
            found.update(f"{file.relative_to(REPOSITORY)} {file.stat().st_mode:o}\n".encode())
            found.update(file.read_bytes())
    return found.hexdigest()


def _run(*command: str | Path) -> None:
    subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )


class Guest:
    """A machine that boots the image in *root*, with *user_data*, in the network namespace *netns*.

    Use it in a `with` block. *folder* is root's own, and has to be empty.
    """

    def __init__(self, root: Path, folder: Path, netns: str, user_data: bytes) -> None:
        self._root = root
        self._folder = folder
        self._netns = netns
        self._user_data = user_data

    def __enter__(self) -> Guest:
        seed = self._folder / "written/var/lib/cloud/seed/nocloud"
        for made in (seed, self._folder / "work", self._folder / "root"):
            made.mkdir(parents=True)
        (seed / "user-data").write_bytes(self._user_data)
        (seed / "meta-data").write_text("instance-id: guest\nlocal-hostname: guest\n")
        units = self._folder / "written/etc/systemd/system"
        units.mkdir(parents=True)
        for name in MASKED:
            (units / name).symlink_to("/dev/null")
        group = booted.add_group(f"gsaas-{self._folder.name}-{os.getpid()}")
        (self._folder / "group").symlink_to(group)
        words = ("setpriv", "--pdeathsig=KILL", "unshare", "--mount", "sh", "-euc", BOOT, "boot")
        with (self._folder / "console").open("w") as console:
            self._process = subprocess.Popen(
                [*words, self._folder, self._root, self._netns],
                env={**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        booted.pull(self._folder)
        self._process.wait()

    def type(
        self, script: str, *, text: str = "", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Have the login shell of root run *script*, whose standard input is *text*."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd=/root")
        done = subprocess.run(
            ["nsenter", f"--target={self._leader()}", *spaces, "bash", "-lc", script],
            env={"HOME": "/root", "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{script}:\n{done.stdout}{done.stderr}"
        return done

    def _wait(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._is_up():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self._folder / "console").read_text()[-3000:])
            time.sleep(0.25)

    def _is_up(self) -> bool:
        if not self._leader():
            return False
        said = self.type("cloud-init status", check=False).stdout
        return said.strip().endswith(("done", "error"))

    def _leader(self) -> str:
        found = subprocess.run(
            ["pgrep", "--parent", str(self._process.pid)], capture_output=True, text=True
        )
        return found.stdout.split("\n", maxsplit=1)[0]
