# SPDX-License-Identifier: Apache-2.0
"""The real server and client of LUPINE, built from a pinned source against the fake CUDA driver.

The source is Apache-2.0, and none of it is in this repository. It is the git repository that GSAAS_LUPINE_SOURCE names,
else a clone of the public one. The build, some minutes, is kept in build/lupine.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.cuda import driver
from tests.support.waiting import PATIENCE

REPOSITORY = Path(__file__).parents[2]
COMMIT = "7fbd3647524855fedbaf46bc5d4e198276f9b1c8"
"""Of 21 August 2026; doc/gpu-hosts.md describes this one."""
PUBLIC = "https://github.com/lupinemachines/lupine"
TOOLKIT = Path("/usr/local/cuda")


class NotBuildable(Exception):
    """It cannot be built here; the text says why."""


@dataclass(frozen=True)
class Lupine:
    """Where the parts are."""

    server: Path
    client: Path
    """The folder of its libcuda.so.1."""
    driver: Path
    """The folder of the fake driver, for the server."""

    @contextmanager
    def serving(
        self, *, port: int | None = None, netns: str | None = None, **environment: str
    ) -> Iterator[tuple[str, int]]:
        """Run a server, in the network namespace *netns* if that is given; yield its address and port."""
        if port is None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
        before = [] if netns is None else ["ip", "netns", "exec", netns]
        variables = {
            "LUPINE_PORT": str(port),
            "LUPINE_LOG_LEVEL": "error",
            "LD_LIBRARY_PATH": str(self.driver),
            **environment,
        }
        process = subprocess.Popen(
            [*before, self.server], env={**os.environ, **variables}, start_new_session=True
        )
        try:
            _await_listener(port, process)
            yield "127.0.0.1", port
        finally:
            os.killpg(process.pid, 9)
            process.wait()

    def environment(self, *servers: tuple[str, int]) -> dict[str, str]:
        """Return what a client needs."""
        return {
            "LUPINE_SERVER": ",".join(f"{ip}:{port}" for ip, port in servers),
            "LUPINE_DISABLE_LOCAL": "1",
            "LUPINE_LOG_LEVEL": "error",
            "LD_LIBRARY_PATH": str(self.client),
        }


def built() -> Lupine:
    """Return it, built once for all tests; raises `NotBuildable`."""
    folder = REPOSITORY / "build" / "lupine" / COMMIT[:12]
    there = Lupine(folder / "build/lupine_driver_server", folder / "build", folder / "driver")
    if (folder / "built").exists():
        return there
    if not (TOOLKIT / "include/cuda.h").exists():
        raise NotBuildable(f"LUPINE is not built: there is no CUDA toolkit in {TOOLKIT}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _fetch(folder / "source")
    driver.build(there.driver, TOOLKIT / "include")
    _build(folder, there.driver / driver.NAME)
    (folder / "built").touch()
    return there


def _fetch(source: Path) -> None:
    origin = os.environ.get("GSAAS_LUPINE_SOURCE", PUBLIC)
    try:
        _run("git", "clone", "--quiet", "--no-checkout", origin, source, timeout=120)
        _run("git", "-C", source, "checkout", "--quiet", COMMIT)
    except (subprocess.SubprocessError, OSError) as error:
        raise NotBuildable(
            f"LUPINE's source cannot be had from {origin} ({error}); GSAAS_LUPINE_SOURCE may name a clone of it"
        ) from None


def _build(folder: Path, library: Path) -> None:
    options = {
        "CMAKE_CXX_FLAGS": "-O1",
        "BUILD_TESTING": "OFF",
        "LUPINE_BUILD_NVML": "OFF",
        "CUDAToolkit_ROOT": TOOLKIT,
        "CUDA_cuda_driver_LIBRARY": library,
    }
    wanted = [f"-D{name}={value}" for name, value in options.items()]
    try:
        _run(*("cmake", "-G", "Ninja", "-S", folder / "source", "-B", folder / "build"), *wanted)
        _run(
            *("nice", "ninja", "-C", folder / "build"),
            *("lupine_driver_server", "lupine_cuda_client"),
            timeout=1800,
        )
    except subprocess.CalledProcessError as error:
        raise NotBuildable(f"LUPINE could not be built: {error.stdout[-500:]}") from None


def _run(*command: str | Path, cwd: Path | None = None, timeout: float = 300) -> None:
    subprocess.run(
        command,
        cwd=cwd,
        timeout=timeout,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _await_listener(port: int, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        # A bare connection would leave a process behind for ever, so /proc is asked.
        for line in Path(f"/proc/{process.pid}/net/tcp").read_text(encoding="ascii").splitlines():
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                return
        time.sleep(0.01)
    raise AssertionError("the server does not listen")
