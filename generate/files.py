# SPDX-License-Identifier: Apache-2.0
"""The files that are generated: their paths, and what they contain now."""

from __future__ import annotations

from pathlib import Path

from generate import bash, fish, man, programs, zsh

REPOSITORY = Path(__file__).resolve().parents[1]
SHARE = "share"
"""The folder of generated files in that of a distribution; it has the structure of /usr/share."""


def expected() -> dict[str, str]:
    """Return what every generated file contains, by its path from the root of the source tree."""
    known = programs.all_programs()
    found = {}
    for distribution in programs.DISTRIBUTIONS:
        share = (Path(distribution.folder) / SHARE).as_posix()
        for program in (make() for make in distribution.programs):
            name, section = program.name, program.section
            found[f"{share}/man/man{section}/{name}.{section}"] = man.render(program, known)
            if name in distribution.completed:
                found[f"{share}/bash-completion/completions/{name}"] = bash.render(program)
                found[f"{share}/zsh/site-functions/_{name}"] = zsh.render(program)
                found[f"{share}/fish/vendor_completions.d/{name}.fish"] = fish.render(program)
    return found


def present() -> dict[str, str]:
    """Return what the files contain that are in the folders of generated files, by path."""
    return {
        path.relative_to(REPOSITORY).as_posix(): path.read_text()
        for distribution in programs.DISTRIBUTIONS
        for path in sorted((REPOSITORY / distribution.folder / SHARE).rglob("*"))
        if path.is_file()
    }


def write() -> None:
    """Write every generated file, and remove those that are generated no more."""
    wanted = expected()
    for path in present().keys() - wanted.keys():
        (REPOSITORY / path).unlink()
    for path, text in wanted.items():
        file = REPOSITORY / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
