# SPDX-License-Identifier: Apache-2.0
"""The files that are generated: their paths, and what they contain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from generate import bash, fish, man, programs, schemas, zsh

SHARE = "share"
"""The folder of generated files in that of a distribution; it has the structure of /usr/share."""


def expected() -> dict[str, str]:
    """Return the text of every generated file by its path, as if it were in the source tree."""
    known = programs.all_programs()
    found = schemas.files()
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


def write(folder: Path, texts: Mapping[str, str] | None = None) -> None:
    """Write every generated file, or those of *texts*, into *folder*, which may be the source tree or a copy of it."""
    for path, text in (expected() if texts is None else texts).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
