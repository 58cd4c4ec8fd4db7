# SPDX-License-Identifier: Apache-2.0
"""Builds the program `gsaas` and the shared objects beside it: setup.cfg cannot describe what is compiled from C.

gsaas-run.so needs libevent, jansson and nettle, and gsaas-tls.so, which it loads for https, needs OpenSSL: pkg-config
finds them. Where they cannot be built, the reason is printed, and a Python script of the same name, which behaves the
same, is installed in their place. GSAAS_LAUNCHER=script asks for the script: its wheel fits every platform.
GSAAS_LAUNCHER=program lets the build fail instead.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

# setuptools provides this module, and has no name of its own for it.
from distutils.command.build_scripts import build_scripts  # isort: skip

SOURCES = sorted(str(path) for path in Path().glob("*.c"))
PROGRAM_SOURCES = ["main.c", "python.c"]
TLS_SOURCES = ["tls.c"]
RUN_SOURCES = [source for source in SOURCES if source not in ("main.c", *TLS_SOURCES)]
SCRIPT = "#!python\nfrom gsaasclient.cli.main import main\n\nraise SystemExit(main())\n"
FLAGS = ("-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra")
RUN_LIBRARIES = ("libevent_core >= 2.1", "libevent_extra >= 2.1", "jansson >= 2.7", "nettle >= 3.4")
TLS_LIBRARIES = ("libevent_core >= 2.1", "libevent_openssl >= 2.1", "openssl >= 1.1.1")
PACKAGES = "gcc libc6-dev pkg-config libevent-dev libjansson-dev libssl-dev nettle-dev"


class CannotBuildError(Exception):
    """The program cannot be compiled here; the message says what is missing."""


class BuildLauncher(build_scripts):
    """Compiles the launcher, or writes the script in its place."""

    def run(self) -> None:
        folder = Path(self.build_dir)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "gsaas"
        built = (program, folder / "gsaas-run.so", folder / "gsaas-tls.so")
        for file in built:  # a build directory may contain what an earlier build made
            file.unlink(missing_ok=True)
        wanted = os.environ.get("GSAAS_LAUNCHER")
        try:
            if wanted != "script":
                compile_launcher(*built)
        except CannotBuildError as error:
            message = (
                f"the launcher is not compiled, gsaas run will start more slowly: {error}; "
                f"on Debian and Ubuntu, apt-get install {PACKAGES}"
            )
            if wanted == "program":
                raise SystemExit(message) from error
            self.warn(message)
        if not all(file.exists() for file in built):
            for file in built:
                file.unlink(missing_ok=True)
            program.write_text(SCRIPT)
        program.chmod(0o755)


class Wheel(bdist_wheel):
    """Tags the wheel with its platform, unless it contains the script instead of a compiled program."""

    def get_tag(self) -> tuple[str, str, str]:
        built = Path(self.get_finalized_command("build_scripts").build_dir, "gsaas")
        if not built.exists() or built.read_bytes()[:2] == b"#!":
            return super().get_tag()
        return "py3", "none", re.sub(r"[-.]", "_", sysconfig.get_platform())


def compile_launcher(program: Path, run: Path, tls: Path) -> None:
    """Compile *program* and the shared objects. Raises `CannotBuildError`."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is None:
        raise CannotBuildError("there is no C compiler")
    shared = ("-fPIC", "-shared")
    parts = [
        (program, [*PROGRAM_SOURCES, "-ldl"]),
        (run, [*shared, *RUN_SOURCES, *library_flags(*RUN_LIBRARIES), "-ldl"]),
        (tls, [*shared, *TLS_SOURCES, *library_flags(*TLS_LIBRARIES)]),
    ]
    try:
        for made, arguments in parts:
            command = [*shlex.split(compiler), *FLAGS, "-o", str(made), *arguments]
            if subprocess.run(command, check=False).returncode:
                raise CannotBuildError("the compiler has failed")
    except OSError as error:
        raise CannotBuildError(f"{compiler} cannot be run: {error.strerror}") from error


def library_flags(*libraries: str) -> list[str]:
    """Return the arguments with which the compiler finds *libraries*. Raises `CannotBuildError`."""
    tool = os.environ.get("PKG_CONFIG", "pkg-config")
    command = [tool, "--print-errors", "--cflags", "--libs", *libraries]
    try:
        found = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        raise CannotBuildError(f"{tool} cannot be run: {error.strerror}") from error
    if found.returncode:
        raise CannotBuildError(" ".join(found.stderr.split()) or f"{tool} has failed")
    # libevent_openssl brings the whole libevent along, which has in it once more what is in libevent_core.
    return [argument for argument in found.stdout.split() if argument != "-levent"]


setup(scripts=SOURCES, cmdclass={"build_scripts": BuildLauncher, "bdist_wheel": Wheel})
