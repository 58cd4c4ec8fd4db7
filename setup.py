"""Builds the program `gsaas`, which setup.cfg cannot describe: it is compiled from the C sources in launcher/.

The program needs a C library and nothing else. Where no compiler can build it, a Python script of the same name is
installed in its place and behaves the same.
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

SOURCES = sorted(str(path) for path in Path("launcher").glob("*.c"))
SCRIPT = "#!python\nfrom gsaas.cli.main import main\n\nraise SystemExit(main())\n"


class BuildLauncher(build_scripts):
    """Compiles the launcher, or writes the script in its place."""

    def run(self) -> None:
        folder = Path(self.build_dir)
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "gsaas"
        if not compile_launcher(program):
            self.warn("no C compiler that builds the launcher: gsaas run will start more slowly")
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
