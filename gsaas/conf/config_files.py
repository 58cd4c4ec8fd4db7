# SPDX-License-Identifier: Apache-2.0
"""What is wrong with the configuration files in use: options that no process reads, and deprecated ones.

oslo.config ignores options and sections that it does not know, so that several programs can share a file; a typing
error would change nothing and say nothing. This module reports what looks like an option of GSaaS and is none. Sections
that belong to GSaaS alone are checked completely; in those that libraries share, such as [DEFAULT] and [nova], only
names that resemble an option of GSaaS are reported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from oslo_config import cfg

Sections = Mapping[str, Collection[str]]
"""Section -> the names of options in it."""

Places = Mapping[tuple[str, str], str]
"""(section, name of an option in it, or an empty one for its heading) -> file and line, the last one that counts."""

SHARED = frozenset({"DEFAULT", "nova"})
"""Sections in which libraries have options as well, which are registered only when they are needed."""

CLOSE = 0.8
"""How similar two names must be, by `difflib`, for one to be taken for a typing error in the other."""


def problems(conf: cfg.ConfigOpts, own: Mapping[str, Collection[cfg.Opt]]) -> list[str]:
    """Return a sentence for each unknown or deprecated option in the files that *conf* was read from, with its line.

    *own* are the options of GSaaS by section; what *conf* has registered besides is known as well.
    """
    where = places(conf)
    found: dict[str, set[str]] = {}
    for section, name in where:
        found.setdefault(section, set()).update({name} - {""})
    known = {section: {option.dest for option in options} for section, options in own.items()}
    registered = {
        section: set(
            conf if section == "DEFAULT" else (conf[section] if section in conf else ())  # noqa: SIM401  (it has no working `get`)
        )
        for section in found
    }
    said = [*deprecated(found, own), *unknown(found, known, registered, own)]
    return [f"{where[section, name]}: {sentence}" for section, name, sentence in said]


def files(conf: cfg.ConfigOpts) -> list[Path]:
    """Return the files that *conf* was read from; of two that set an option, the later one counts."""
    paths = [Path(path) for path in conf.config_file or ()]
    for folder in conf.config_dir or ():
        paths += sorted(Path(folder).glob("*.conf"))
    return paths


def places(conf: cfg.ConfigOpts) -> dict[tuple[str, str], str]:
    """Return where the files that *conf* was read from have each section and each option."""
    found: dict[tuple[str, str], str] = {}
    for path in files(conf):
        section = ""
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if line[:1] in ("", "#", ";") or line[0].isspace():
                continue  # a comment, or more of the value above
            if line.startswith("["):
                section, name = line[1:].partition("]")[0], ""
            else:
                name = _dest(re.split("[:=]", line, maxsplit=1)[0].strip())
            found[section, name] = f"{path}:{number}"
    return found


Sentence = tuple[str, str, str]
"""A section, an option in it as in `Places`, and what is wrong with it."""


def deprecated(found: Sections, own: Mapping[str, Collection[cfg.Opt]]) -> Iterator[Sentence]:
    """Yield a sentence for each option of *found* that has another name now, or will be removed."""
    for section, options in own.items():
        for option in options:
            for old in option.deprecated_opts:
                where, name = old.group or section, old.name or option.name
                if _dest(name) in found.get(where, ()):
                    yield (
                        *(where, _dest(name)),
                        f"[{where}]{name} is deprecated: write [{section}]{option.name} instead",
                    )
            if option.deprecated_for_removal and option.dest in found.get(section, ()):
                since = f" since {option.deprecated_since}" if option.deprecated_since else ""
                yield (
                    *(section, option.dest),
                    f"[{section}]{option.name} is deprecated{since} and will be removed: {option.deprecated_reason}",
                )


def unknown(
    found: Sections,
    known: Sections,
    registered: Sections,
    own: Mapping[str, Collection[cfg.Opt]],
) -> Iterator[Sentence]:
    """Yield a sentence for each name of *found* that looks like one of *known* and is none.

    Names in *registered* are options of libraries; deprecated names of *own* options have a sentence of their own.
    """
    old = {
        (name.group or section, _dest(name.name or option.name))
        for section, options in own.items()
        for option in options
        for name in option.deprecated_opts
    }
    for section in sorted(found):
        if section not in known:
            if not registered[section] and (nearest := _nearest(section, known)):
                yield (
                    section,
                    "",
                    f"no process reads the section [{section}]: do you mean [{nearest}]?",
                )
            continue
        for name in sorted(found[section]):
            if name in {*known[section], *registered[section]} or (section, name) in old:
                continue
            nearest = _nearest(name, known[section])
            elsewhere = [f"[{other}]{name}" for other in sorted(known) if name in known[other]]
            if nearest:
                advice = f"do you mean [{section}]{nearest}?"
            elif elsewhere:
                advice = f"do you mean {' or '.join(elsewhere)}?"
            elif section in SHARED:
                continue
            else:
                advice = f"the options of [{section}] are {', '.join(sorted(known[section]))}"
            yield section, name, f"no process reads [{section}]{name}: {advice}"


def _nearest(name: str, names: Collection[str]) -> str | None:
    """Return the one of *names* that was probably meant by *name*; None if none is similar."""
    return next(iter(difflib.get_close_matches(name, sorted(names), 1, CLOSE)), None)


def _dest(name: str) -> str:
    """Return the name as programs write it; in files, oslo.config takes a hyphen for an underscore as well."""
    return name.replace("-", "_")
