# SPDX-License-Identifier: Apache-2.0
"""Interactive shells, in which completion is asked for as users do: with the key Tab, on a terminal.

They find the generated files, which are in the home folder, where they find those of an installed distribution.
"""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROMPT = "ready> "
END = "end-of-answer"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[=>]|[\x07\r]")

BASH = f"""\
PS1='{PROMPT}'
bind 'set enable-bracketed-paste off'
bind 'set completion-display-width 0'
bind 'set completion-query-items 0'
bind 'set page-completions off'
bind 'set show-all-if-ambiguous on'
source /usr/share/bash-completion/bash_completion
"""
ZSH = f"""\
PS1='{PROMPT}'
unsetopt zle_bracketed_paste
fpath=($HOME/generated/client/share/zsh/site-functions $HOME/generated/share/zsh/site-functions $fpath)
autoload -Uz compinit
compinit -u -d $HOME/compdump
# Print each match on a line of its own, and add none: the line stays as it was typed.
compadd() {{
    if [[ ${{@[1,(i)(-|--)]}} == *-(O|A|D)\\ * ]]; then
        builtin compadd "$@"
        return
    fi
    local -a found
    builtin compadd -O found "$@"
    print -l "" "match "$^found
}}
"""


def shares(home: Path) -> tuple[Path, Path]:
    """Return the folders of generated files, of both distributions, which have the structure of /usr/share."""
    return home / "generated/client/share", home / "generated/share"


def bash(line: str, home: Path) -> set[str]:
    """Return what bash offers after *line*; if it completes the line instead, its last word or value."""
    (home / ".bashrc").write_text(BASH)
    typed, *listed = _answer(["bash", "--noprofile", "-i"], line, home).splitlines()
    if not listed:
        return {re.split(r"[ =]", typed.strip())[-1]} if typed != line else set()
    return set(listed[:-1])


def zsh(line: str, home: Path) -> set[str]:
    """Return what zsh offers after *line*."""
    (home / ".zshrc").write_text(ZSH)
    answer = _answer(["zsh", "-i"], line, home)
    return set(re.findall(r"^match (.+)$", answer, re.MULTILINE))


def fish(line: str, home: Path) -> set[str]:
    """Return what fish offers after *line*: only the value, for an option with one."""
    command = ["fish", "--command", 'complete --do-complete="$argv"', line]
    found = subprocess.run(
        command, env=_environment(home), cwd=home, capture_output=True, text=True, check=True
    )
    offered = {offer.partition("\t")[0] for offer in found.stdout.splitlines()}
    return {offer.partition("=")[2] if "=" in offer else offer for offer in offered}


def _environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        # fish completes only what can be run.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "XDG_DATA_DIRS": ":".join(map(str, shares(home))),
    }


def _answer(shell: list[str], line: str, home: Path) -> str:
    """Return what *shell* prints while somebody types *line* and Tab in the folder *home*, the line first."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [shutil.which(shell[0]) or shell[0], *shell[1:]],
        **dict.fromkeys(("stdin", "stdout", "stderr"), slave),
        env=_environment(home),
        cwd=home,
        start_new_session=True,
    )
    os.close(slave)
    try:
        _read_until(master, PROMPT)  # before it, the terminal itself would print what is typed
        os.write(master, f"{line}\t{END}".encode())
        return _read_until(master, END)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _read_until(terminal: int, text: str) -> str:
    """Return what is printed before *text*, without control characters."""
    found = ""
    while text not in found:
        found += CONTROL.sub("", os.read(terminal, 65536).decode(errors="replace"))
    return found.partition(text)[0]
