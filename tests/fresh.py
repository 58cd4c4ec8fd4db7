# SPDX-License-Identifier: Apache-2.0
"""`./dev fresh`: run commands of ./dev on a machine on which nothing is installed yet.

1. Such a machine is the minimal root of a release, which mmdebstrap makes, in mount, PID, UTS and IPC namespaces of its
   own. Each command gets a new one.
2. It begins with a clone of this tree: what is committed, and the changes of files that git tracks.
3. `./dev setup` installs there what the command needs, in the network of this machine. The command itself has a network
   of its own, which leads nowhere, unless its tests fetch more.
4. How packages are reached is as here: mirrors, proxies, certificates, pip's settings and the folders that they name.
5. Roots, package indexes and downloads are kept in /var/tmp/gsaas-fresh. What a killed run left there, the next one
   removes.

It imports nothing but the standard library: it runs before there is an environment.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = Path("/var/tmp/gsaas-fresh")  # noqa: S108 (root's own)
SOURCE = "/srv/gsaas"
"""Where the clone is; every user of the root may read it."""
RELEASES = ("bookworm", "trixie", "noble")
UBUNTU_KEYS = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
UBUNTU = f"""\
Types: deb
URIs: http://archive.ubuntu.com/ubuntu
Suites: noble noble-updates noble-security
Components: main universe
Signed-By: {UBUNTU_KEYS}
"""
FETCHING = {
    "tests/install": "pip resolves releases",
    "tests/guest": "an image is built of packages",
    "tests/images": "images are built of packages",
    "tests/slurm": "Slurm is installed for them",
}
"""Tests that fetch something while they run, and what."""
IMPOSSIBLE = {
    "tests/openstack": "a whole OpenStack needs a machine of its own: run ./dev test openstack on one"
}
"""What no such root can run, and why."""
PIP_CACHE = "/var/cache/pip"
"""Where pip keeps what it has downloaded, in the root."""
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTER = """\
root=$1 source=$2
shift 2
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm
mount -t tmpfs tmpfs run
while [ "$1" != -- ]; do
    mkdir -p ".$2"
    mount --rbind "$1" ".$2"
    shift 2
done
shift
ip link set lo up
hostname fresh
pivot_root . .
umount -l .
cd "$source"
"$@"
exit
"""
"""Run with: the root, the folder to begin in, pairs of a folder here and where it is there, `--`, and a command.

The shell stays, as the first process of its PID namespace: it reaps those that lose their parents, which a command in
its place would leave as zombies. The `exit` keeps it from becoming the command, which otherwise were its last one.
"""


class NotPossible(Exception):
    """A fresh root cannot do that; the text says why."""


@dataclass(frozen=True)
class Run:
    """A command of ./dev, with what `./dev setup` gets before it, and whether it has the network of this machine."""

    command: tuple[str, ...]
    setup: str
    fetches: bool = False

    def __str__(self) -> str:
        return shlex.join(("./dev", *self.command))


def runs(names: Sequence[str]) -> list[Run]:
    """Return what to run for the folders *names*, by default the demonstration and the fast tests.

    Raises `NotPossible`.
    """
    return [_run(name.rstrip("/").removeprefix("./")) for name in names or ("demo", "quick")]


def _run(name: str) -> Run:
    if name == "demo":
        return Run(("demo",), "demo")
    if name == "quick":
        return Run(("test", "quick"), "quick")
    if name == "constrained":
        return Run(("test", "constrained"), "constrained")
    for folder, reason in IMPOSSIBLE.items():
        if _is_in(name, folder) or _is_in(folder, name):
            raise NotPossible(f"{name} cannot be run on a fresh root: {reason}")
    if not (REPOSITORY / name).exists() or not _is_in(name, "tests"):
        raise NotPossible(f"{name}: name folders of tests, or demo, quick, constrained")
    return Run(("test", name), name, any(_is_in(name, folder) for folder in FETCHING))


def _is_in(name: str, folder: str) -> bool:
    return f"{name}/".startswith(f"{folder}/")


def of_release(sources: str, here: str, wanted: str) -> str:
    """Return apt's *sources* with the release *wanted* for *here*."""
    return re.sub(rf"\b{re.escape(here)}\b", wanted, sources)


def folders_named(listed: str) -> list[str]:
    """Return the absolute paths in what `pip config list` printed.

    Of a file:// address it is the folder above: the pages of an index lead to files beside it.
    """
    found = re.findall(r"(?<![\w:/])(file://)?(/[^\s'\"\\]+)", listed)
    return sorted({str(Path(path).parent if address else Path(path)) for address, path in found})


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="./dev fresh", description="Run commands of ./dev on fresh minimal roots."
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="FOLDER",
        help="a folder of tests, demo, quick or constrained; default: demo and quick",
    )
    parser.add_argument("--release", choices=RELEASES, default=RELEASES[0])
    options = parser.parse_args()
    if options.release == "noble" and not UBUNTU_KEYS.exists():
        parser.error(
            "noble needs the keys of Ubuntu's archive here: install ubuntu-keyring, which Debian 13 has, not 12"
        )
    try:
        wanted = runs(options.names)
    except NotPossible as reason:
        parser.error(str(reason))
    CACHE.mkdir(mode=0o700, exist_ok=True)
    results = [(run, _on_fresh_root(run, options.release)) for run in wanted]
    for run, status in results:
        _say(f"{'passed' if status == 0 else f'FAILED ({status})'}: {run}")
    for folder, reason in IMPOSSIBLE.items():
        _say(f"not run: {folder}: {reason}")
    return max(status for _, status in results)


def _on_fresh_root(run: Run, release: str) -> int:
    with _folder() as folder:
        root = folder / "root"
        root.mkdir()
        with _locked(CACHE / f"{release}.lock"):
            archive = _archive(release, folder)
            subprocess.run(["tar", "-xpf", archive, "-C", root], check=True)
            _equip(root)
            _clone(root)
            _say(f"{release}: ./dev setup {run.setup}")
            status = _inside(root, release, "./dev", "setup", run.setup, network=True)
        if status == 0:
            _say(f"{release}: {run}")
            status = _inside(root, release, "./dev", *run.command, network=run.fetches)
        return status


def _archive(release: str, folder: Path) -> Path:
    """Return a tar archive of the minimal root, made by mmdebstrap in *folder* if there is none yet."""
    archive = CACHE / f"{release}.tar"
    if not archive.exists():
        _say(f"making a minimal root of {release} (minutes)")
        sources, made = folder / "apt.sources", folder / archive.name
        sources.write_text(UBUNTU if release == "noble" else sources_of(release))
        command = ["mmdebstrap", "--quiet", "--variant=minbase", release, made, sources]
        # What it leaves when it is killed is removed with the folder.
        subprocess.run(command, check=True, env=os.environ | {"TMPDIR": str(folder)})
        made.rename(archive)
    return archive


def sources_of(release: str) -> str:
    """Return apt's sources of this machine, for *release*."""
    found = Path("/etc/os-release").read_text()
    here = re.search(r"^VERSION_CODENAME=(\w+)", found, re.MULTILINE)
    if here is None or here[1] not in RELEASES[:2]:
        raise SystemExit(
            "./dev fresh: the sources of apt are taken from this machine, which is no Debian 12 or 13"
        )
    files = Path("/etc/apt/sources.list.d").glob("*.sources")
    return of_release("\n".join(file.read_text() for file in sorted(files)), here[1], release)


def _equip(root: Path) -> None:
    """Have packages reached from the root as they are from here, and what an installer writes."""
    dump = subprocess.run(["apt-config", "dump"], check=True, capture_output=True, text=True).stdout
    kept = [line for line in dump.splitlines() if line.startswith("Acquire::")]
    (root / "etc/apt/apt.conf.d/90here").write_text("\n".join([*kept, ""]))
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 fresh\n")
    for path in (
        "etc/resolv.conf",
        "etc/apt/auth.conf.d",
        "etc/ssl/certs",
        "usr/local/share/ca-certificates",
        "etc/pip.conf",
        "etc/xdg/pip",
        "root/.config/pip",
    ):
        here, there = Path("/", path), root / path
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            # Certificates are links into a package that the root lacks.
            shutil.copytree(here, there, dirs_exist_ok=True, ignore_dangling_symlinks=True)
        elif here.exists():
            shutil.copy(here, there)


def _clone(root: Path) -> None:
    target = root / SOURCE[1:]
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", REPOSITORY, target], check=True)
    changes = subprocess.run(
        ["git", "diff", "--binary", "HEAD"], cwd=REPOSITORY, check=True, capture_output=True
    ).stdout
    if changes:
        subprocess.run(["git", "apply", "--index"], cwd=target, input=changes, check=True)


def _inside(root: Path, release: str, *command: str, network: bool) -> int:
    """Run *command* in the root; return its exit status."""
    kept = {
        CACHE / f"{release}-indexes": "/var/lib/apt/lists",
        CACHE / f"{release}-packages": "/var/cache/apt/archives",
        CACHE / f"{release}-pip": PIP_CACHE,
    }
    for folder in kept:
        (folder / "partial").mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(pip, check=False, capture_output=True, text=True).stdout
    shared = {Path(name): name for name in folders_named(listed) if Path(name).is_dir()}
    binds = [str(word) for pair in (kept | shared).items() for word in pair]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "http", "no_proxy", "SSL_", "TERM", "GSAAS_"))
    }
    # All of it ends with this process, however that ends.
    unshare = ["setpriv", "--pdeathsig=KILL", "unshare", "--mount", "--pid", "--fork"]
    unshare += ["--kill-child", "--uts", "--ipc", "--propagation=private"]
    unshare += [] if network else ["--net"]
    enter = ["bash", "-euc", ENTER, "enter", str(root), SOURCE, *binds, "--", *command]
    return subprocess.run(
        [*unshare, *enter],
        env={
            **environment,
            "PIP_CACHE_DIR": PIP_CACHE,
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "PATH": BASE_PATH,
        },
        stdin=subprocess.DEVNULL,
        check=False,
    ).returncode


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder that is locked, and removed afterwards.

    Those of killed runs are removed before: nobody locks them.
    """
    with contextlib.ExitStack() as stack:
        with _locked(CACHE / "lock"):
            _remove_remains()
            folder = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
            # Another run may find it unlocked then, and remove it, too.
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.enter_context(_locked(folder / "lock"))
        yield folder


def _remove_remains() -> None:
    for folder in CACHE.glob("run-*"):
        # A run that is ending removes its own folder meanwhile.
        with (
            contextlib.suppress(BlockingIOError, FileNotFoundError),
            (folder / "lock").open("w") as lock,
        ):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(f"./dev fresh: {line}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
