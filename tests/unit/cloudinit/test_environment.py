# SPDX-License-Identifier: Apache-2.0
"""Every reader inside a server gets the same environment: asked of those readers themselves."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsaas.cloudinit import environment
from gsaas.cloudinit.boot import pam_script
from tests.support import pam

GENERATOR = Path("/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator")
AWKWARD = {
    "PLAIN": "169.254.71.1@8309:0",
    "SPACES": "  two  words ",
    "QUOTES": """it's "quoted" `twice`""",
    "DOLLARS": "$HOME ${HOME} $$ $(reboot) !x",
    "BACKSLASHES": r"\ \\ \n \" trailing\\"[:-1],
    "UNICODE": "é 日本 😀",
    "EDGES": "\"'",
    "GLOBS": "* ? [a] ~ & ; | < > ( )",
}

values = st.text(
    st.characters(exclude_categories=("C", "Zl", "Zp"), exclude_characters="#%"),
    min_size=1,
    max_size=40,
).filter(str.isprintable)
environments = st.dictionaries(
    st.from_regex(r"GSAAS_[A-Za-z0-9_]{0,8}", fullmatch=True), values, min_size=1, max_size=5
)


def sourced(script: str, before: dict[str, str] | None = None) -> dict[str, str]:
    """The environment after a real shell sourced *script*."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script"
        path.write_text(script)
        output = subprocess.run(
            ["/bin/sh", "-euc", f". {path}; exec /usr/bin/env -0"],
            env=before or {},
            capture_output=True,
            check=True,
        ).stdout
    pairs = (item.split("=", 1) for item in output.decode().split("\0") if item)
    return {name: value for name, value in pairs if name not in ("PWD", "_", "SHLVL", "OLDPWD")}


def generated(content: str, before: dict[str, str] | None = None) -> dict[str, str]:
    """The environment that systemd's own reader of environment.d gives to a user manager."""
    if not GENERATOR.exists():
        raise RuntimeError(f"{GENERATOR} is missing: install the Debian package systemd")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "environment.d" / "99-gsaas.conf"
        path.parent.mkdir()
        path.write_text(content)
        ran = subprocess.run(
            [GENERATOR],
            env={"XDG_CONFIG_HOME": folder, "HOME": "/nonexistent", **(before or {})},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ran.stderr == ""
    return sourced(f"set -a\n{ran.stdout}\n")  # it writes for a shell to read


def logged_in(env: dict[str, str]) -> dict[str, str]:
    """The environment of a login, with our block in an /etc/environment."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "environment"
        subprocess.run(["/bin/sh", "-eu", "-c", pam_script(env, str(path))], check=True)
        return pam.environment(path)


def assigned(content: str) -> dict[str, str]:
    """What a file of system.conf.d assigns: words with C escapes, of which we use two."""
    header, *lines = content.splitlines()
    assert header == "[Manager]"
    words = []
    for line in lines:
        key, _, value = line.partition("=")
        assert key == "DefaultEnvironment"
        words += shlex.split(value)
    return dict(word.split("=", 1) for word in words)


def subset(found: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    return {name: found.get(name) for name in wanted}


def test_a_login_shell_reads_awkward_values_as_they_are():
    assert sourced(environment.shell_exports(AWKWARD)) == AWKWARD


def test_pam_reads_awkward_values_as_they_are():
    assert logged_in(AWKWARD) == AWKWARD


def test_the_systemd_user_manager_reads_awkward_values_as_they_are():
    assert subset(generated(environment.environment_d(AWKWARD)), AWKWARD) == AWKWARD


def test_the_systemd_system_manager_reads_awkward_values_as_they_are():
    assert assigned(environment.system_conf(AWKWARD)) == AWKWARD


@pytest.mark.slow
@given(environments)
def test_all_readers_agree_on_any_environment(env: dict[str, str]):
    environment.validate(env)

    assert sourced(environment.shell_exports(env)) == env
    assert logged_in(env) == env
    assert subset(generated(environment.environment_d(env)), env) == env
    assert assigned(environment.system_conf(env)) == env


@pytest.mark.parametrize("before", [{}, {"LD_LIBRARY_PATH": "/usr/local/cuda/lib64:/a b"}])
def test_libraries_go_before_those_a_session_has_and_only_once(before: dict[str, str]):
    env = {"LD_LIBRARY_PATH": "/opt/r'CUDA/lib"}
    wanted = ":".join([*env.values(), *before.values()])
    script = environment.shell_exports(env)

    assert sourced(script + script, before) == {"LD_LIBRARY_PATH": wanted}
    user_manager = generated(environment.environment_d(env), before)
    assert user_manager["LD_LIBRARY_PATH"] == wanted


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("1ST", "x", "name"),
        ("A-B", "x", "name"),
        ("A B", "x", "name"),
        ("", "x", "name"),
        ("É", "x", "name"),
        ("A\n", "x", "name"),
        ("A", "", "empty"),
        ("A", "one\ntwo", "not printable"),
        ("A", "tab\t", "not printable"),
        ("A", "\0", "not printable"),
        ("A", "\ud800", "not printable"),
        ("A", "with # comment", "comment"),
        ("A", "100%", "systemd"),
        ("A", "x" * 1001, "longer than 1000 bytes"),
        ("A", "é" * 501, "longer than 1000 bytes"),
    ],
)
def test_what_one_reader_could_not_carry_is_refused_by_name(name: str, value: str, complaint: str):
    with pytest.raises(ValueError, match=complaint) as refusal:
        environment.environment_files({"GOOD": "x", name: value})
    assert repr(name) in str(refusal.value) or f"variable {name} " in str(refusal.value)


def test_system_services_can_be_left_out():
    env = {"RCUDA_DEVICE_COUNT": "1"}
    all_files = {each.path for each in environment.environment_files(env)}
    fewer = {each.path for each in environment.environment_files(env, system_services=False)}

    assert all_files - fewer == {"/etc/systemd/system.conf.d/90-gsaas.conf"}
    assert fewer == {"/etc/profile.d/gsaas.sh", "/etc/environment.d/99-gsaas.conf"}
