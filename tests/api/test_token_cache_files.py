# SPDX-License-Identifier: Apache-2.0
"""Files in the place of the cache that others may have put there are not used, and none is written over."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gsaasclient import token_cache
from gsaasclient.token_cache import Cache, Token
from tests.api.cached_tokens import Programs, rewrite, succeeds
from tests.api.cached_tokens import both as both
from tests.api.cached_tokens import files as files
from tests.api.test_client_cloud import CloudUser
from tests.api.test_client_cloud import certificate as certificate
from tests.api.test_client_cloud import user as user

pytestmark = pytest.mark.slow


def group_readable(file: Path) -> None:
    file.chmod(0o640)


def a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def of_another_user(file: Path) -> None:
    os.chown(file, 12345, -1)


def half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def too_large(file: Path) -> None:
    file.write_text(file.read_text() + " " * token_cache.MAX_BYTES)


def a_queue(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir(mode=0o700)


def of_another_version(file: Path) -> None:
    rewrite(file, version=token_cache.VERSION + 1)


def expired(file: Path) -> None:
    rewrite(file, expires_at=int(time.time()) - 1)


def without_proof(file: Path) -> None:
    rewrite(file, proof="")


def with_another_proof(file: Path) -> None:
    rewrite(file, proof="0" * 64)


def with_a_line_in_the_token(file: Path) -> None:
    rewrite(file, token="first\r\nX-Other: header")


def with_another_scheme(file: Path) -> None:
    rewrite(file, url="file:///etc/passwd")


def https_without_a_bundle(file: Path) -> None:
    rewrite(file, url="https://127.0.0.1:1", bundle=None)


def a_list(file: Path) -> None:
    file.write_text("[]")


def deep(file: Path) -> None:
    file.write_text("[" * 60_000)


def folder_open_to_others(file: Path) -> None:
    file.parent.chmod(0o755)


def folder_of_another_user(file: Path) -> None:
    os.chown(file.parent, 12345, -1)


def folder_is_a_link(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))
    file.parent.symlink_to("moved")


BAD = [
    *(group_readable, a_link, of_another_user, half, too_large, a_queue, a_folder),
    *(of_another_version, expired, without_proof, with_another_proof, with_a_line_in_the_token),
    *(with_another_scheme, https_without_a_bundle, a_list, deep),
    *(folder_open_to_others, folder_of_another_user, folder_is_a_link),
]


@pytest.mark.parametrize("spoil", BAD, ids=lambda spoil: spoil.__name__)
def test_what_is_no_file_of_the_cache_is_ignored(
    user: CloudUser, both: Programs, files, spoil: Callable[[Path], None]
):
    if spoil in (of_another_user, folder_of_another_user) and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    user.read("list")
    (file,) = files()
    spoil(file)
    both.only_note_calls()
    succeeds(both.launcher)
    assert both.calls() == ["run"]
    user.read("list")
    assert len(user.keystone.sign_ins) == 2


def test_what_a_link_leads_to_is_not_written(user: CloudUser, files, tmp_path: Path):
    user.read("list")
    (file,) = files()
    own = tmp_path / "own"
    own.write_text("mine")
    file.unlink()
    file.symlink_to(own)
    user.read("list")
    assert own.read_text() == "mine"
    assert not file.is_symlink()


def test_without_a_place_for_the_cache_everything_works(
    user: CloudUser, both: Programs, tmp_path: Path
):
    blocked = tmp_path / "blocked"
    blocked.touch()
    user.set(XDG_CACHE_HOME=str(blocked))
    assert user.read("list") == []
    succeeds(both.launcher)
    assert both.calls() == ["run"]
    user.set(HOME=None)
    assert user.read("list") == []


@pytest.mark.parametrize("base", [None, "named"])
def test_in_the_home_of_another_user_no_cache_is_made(
    user: CloudUser, both: Programs, tmp_path: Path, base: str | None
):
    """`sudo` may keep HOME: what root made there, its owner could not use or remove.

    stevedore, which the SDK uses, makes a folder of its own there, whose owner is root.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, 12345, -1)
    user.set(HOME=str(home), XDG_CACHE_HOME=base and str(home / base))
    for _ in range(2):
        assert user.read("list") == []
        succeeds(both.launcher)
    assert list(home.rglob("gsaas")) == []


def test_a_place_for_the_cache_in_another_users_folder_is_not_made(tmp_path: Path):
    """`sudo` may also keep XDG_CACHE_HOME alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can give folders away")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, -1)
    place = Cache(str(theirs / "cache" / "gsaas"), "one.json", b"credentials")
    place.write(Token("http://api", "first", 2_000_000_000))
    with place.alone():
        assert place.read() is None
    assert list(theirs.iterdir()) == []


def test_in_the_home_of_this_user_the_folders_are_made(user: CloudUser, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    user.set(HOME=str(home), XDG_CACHE_HOME=None)
    user.read("list")
    folder = home / ".cache" / "gsaas"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.parametrize("variable", ["https_proxy", "HTTP_PROXY", "all_proxy"])
def test_with_a_proxy_nothing_is_cached(user: CloudUser, both: Programs, files, variable: str):
    user.set(**{variable: "http://127.0.0.1:1", "no_proxy": "127.0.0.1"})
    user.read("list")
    succeeds(both.launcher)
    assert (both.calls(), files()) == (["run"], [])


def test_files_of_expired_tokens_are_removed(user: CloudUser, files):
    user.read("list")
    (old,) = files()
    rewrite(old, expires_at=int(time.time()) - 1)
    user.set(OS_PROJECT_NAME="red")
    user.read("list")
    (new,) = files()
    assert new != old
