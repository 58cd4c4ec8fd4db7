# SPDX-License-Identifier: Apache-2.0
"""Builds the program `gsaas`, which setup.cfg cannot describe: it is compiled from the C sources in this folder.

The program needs a C library and nothing else. Where no compiler can build it, a Python script of the same name is
installed in its place and behaves the same. GSAAS_LAUNCHER=script asks for the script: its wheel fits every platform.
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
SCRIPT = "#!python\nfrom gsaasclient.cli.main import main\n\nraise SystemExit(main())\n"


class BuildLauncher(build_scripts):
    """Compiles the launcher, or writes the script in its place."""

    def run(self) -> None:
        folder = Path(self.build_dir)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "gsaas"
        if os.environ.get("GSAAS_LAUNCHER") == "script" or not compile_launcher(program):
            self.warn("the launcher is not compiled: gsaas run will start more slowly")
            program.write_text(SCRIPT)
        program.chmod(0o755)


class Wheel(bdist_wheel):
    """Tags the wheel with its platform, unless it contains the script instead of a compiled program."""

    def get_tag(self) -> tuple[str, str, str]:
        built = Path(self.get_finalized_command("build_scripts").build_dir, "gsaas")
        if not built.exists() or built.read_bytes()[:2] == b"#!":
            return super().get_tag()
        return "py3", "none", re.sub(r"[-.]", "_", sysconfig.get_platform())


def compile_launcher(program: Path) -> bool:
    """Compile *program*; return False if there is no compiler or the compiler fails."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), "")
    flags = ["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wl,-z,now"]
    program.unlink(missing_ok=True)  # a build directory may contain the script of an earlier build
    try:
        command = [*shlex.split(compiler), *flags, "-o", str(program), *SOURCES]
        return bool(compiler) and subprocess.run(command, check=False).returncode == 0
    except OSError:
        return False


setup(scripts=SOURCES, cmdclass={"build_scripts": BuildLauncher, "bdist_wheel": Wheel})
