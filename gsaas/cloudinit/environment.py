# SPDX-License-Identifier: Apache-2.0
"""The client environment of a lease, in the formats of all programs of a server that read an environment.

Rules:

1. A value that one of the readers cannot represent is refused for all (`validate`), so a variable has the same value
   everywhere.
2. `LD_LIBRARY_PATH` is prepended to the existing value, never replaces it, wherever the format allows it.
3. Each format is quoted for its own reader. They look alike and differ: `$` is literal in
   `/etc/environment`, expands in a shell, and expands even inside single quotes in `environment.d`.

`/etc/environment` is shared with others, so it is not written as a file: see `boot`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from gsaas.cloudinit.files import File

SEARCH_PATH = "LD_LIBRARY_PATH"
"""The only variable that extends the value which a server already has."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Must sort after 99-environment.conf: /etc/environment, which systemd unquotes in its own way.
_ENVIRONMENT_D = "/etc/environment.d/99-gsaas.conf"
_MAX_LINE = 1000  # pam_env reads lines of /etc/environment into 1024 bytes, and splits longer ones
_UNPORTABLE = {
    "#": "pam_env takes it for the start of a comment, even inside quotes",
    "%": "some releases of systemd expand it in DefaultEnvironment= and others do not",
}


def validate(env: Mapping[str, str]) -> None:
    """Raise `ValueError`, which names the variable, if any reader in the server cannot represent *env*."""
    for name, value in env.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot be the name of an environment variable")
        if not value:
            raise ValueError(
                f"environment variable {name} is empty, which environment.d cannot represent"
            )
        if not value.isprintable():
            odd = next(char for char in value if not char.isprintable())
            raise ValueError(
                f"environment variable {name} contains {odd!r}, which is not printable"
            )
        for char, why in _UNPORTABLE.items():
            if char in value:
                raise ValueError(f"environment variable {name} contains {char!r}: {why}")
        if len(f'{name}="{value}"'.encode()) > _MAX_LINE:
            raise ValueError(f"environment variable {name} is longer than {_MAX_LINE} bytes")


def shell_exports(env: Mapping[str, str]) -> str:
    """Return lines that a POSIX shell can source any number of times."""
    lines = []
    for name, value in env.items():
        quoted = shlex.quote(value)
        if name == SEARCH_PATH:
            lines += [
                f'case ":${{{name}-}}:" in',
                f"    *:{quoted}:*) ;;",
                f'    *) export {name}={quoted}"${{{name}:+:${name}}}" ;;',
                "esac",
            ]
        else:
            lines.append(f"export {name}={quoted}")
    return "".join(f"{line}\n" for line in lines)


def pam_lines(env: Mapping[str, str]) -> str:
    """Return lines of `/etc/environment` as pam_env reads them: nothing expands, the outer quotes are removed."""
    return "".join(f'{name}="{value}"\n' for name, value in env.items())


def environment_d(env: Mapping[str, str]) -> str:
    """Return a file of `environment.d(5)`, which the systemd user manager reads."""
    lines = []
    for name, value in env.items():
        literal = _c_escaped(value).replace("$", "$$")
        rest = f"${{{name}:+:${name}}}" if name == SEARCH_PATH else ""
        lines.append(f'{name}="{literal}{rest}"\n')
    return "".join(lines)


def system_conf(env: Mapping[str, str]) -> str:
    """Return a drop-in of `systemd-system.conf(5)`: the default environment of system services."""
    lines = (
        f'DefaultEnvironment="{_c_escaped(f"{name}={value}")}"\n' for name, value in env.items()
    )
    return "[Manager]\n" + "".join(lines)


def environment_files(env: Mapping[str, str], *, system_services: bool = True) -> list[File]:
    """Return the files of all readers but those of `/etc/environment`.

    Raises `ValueError` as `validate` does.
    """
    validate(env)
    contents = {
        "/etc/profile.d/gsaas.sh": shell_exports(env),
        _ENVIRONMENT_D: environment_d(env),
    }
    if system_services:
        contents["/etc/systemd/system.conf.d/90-gsaas.conf"] = system_conf(env)
    return [File(path, f"# Written by GSaaS.\n{content}") for path, content in contents.items()]


def _c_escaped(value: str) -> str:
    """Return *value* escaped for double quotes in systemd's files."""
    return value.replace("\\", "\\\\").replace('"', '\\"')
