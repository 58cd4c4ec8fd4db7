# SPDX-License-Identifier: Apache-2.0
"""The cache of Keystone's tokens: a file for each user, project and cloud, which lasts as long as its token.

The program in C reads the same files (launcher/token_cache.c), and never writes one. The rules:

1. A file is `$XDG_CACHE_HOME/gsaas/NAME.json`, by default below `~/.cache`. The folder is this user's own with mode
   0700, the file with mode 0600. Anything else, links and large files too, is ignored and never followed. Nothing is
   made in another user's folder: `sudo` may keep HOME, and its owner could not remove what root made there.
2. A file contains the API's URL, the token, when it expires, the path of the file of certificates that the SDK trusts,
   and a proof that the token belongs to the caller's credentials.
3. The proof is a salted PBKDF2 hash of all that describes the credentials: every `OS_` variable, and the content of
   every file in which the SDK looks for clouds. So another password, region or cloud needs another token. The name says
   only which user, project and cloud it is, so that a new password replaces the token of the old one.
4. A file is written under another name and renamed, so that no reader finds half of one.
5. Whatever is not a plain matter is not cached: proxies, certificates of clients, connections that are not verified,
   and ways to authenticate that depend on more than variables and files.

Only the standard library is used: every command that is given Keystone's credentials reads the cache first.
"""

from __future__ import annotations

import json
import os
import stat
import time
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

VERSION = 2
"""Of the format. A file of another version is ignored."""
MARGIN = 30
"""Seconds before its expiry from which a token is no longer used."""
MAX_BYTES = 64 * 1024
"""Of a file in the cache."""
MAX_CONFIGURATION = 1 << 20
"""Bytes of a file of the configuration; a larger one is not hashed, and no token is cached."""
ITERATIONS = 1000
"""Of PBKDF2. They take less than a millisecond, and make guessing a password from a file that much slower."""
SALT_BYTES = 16
PATIENCE, POLL = 30, 0.02
"""Seconds for which a process waits until another has authenticated, and between two looks."""
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
AUTHORITIES = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
"""Variables that name certificates to trust, for the HTTP library of the SDK."""
NAMING = (
    *("OS_CLOUD", "OS_AUTH_URL", "OS_USERNAME", "OS_USER_ID", "OS_PROJECT_NAME", "OS_PROJECT_ID"),
    *("OS_APPLICATION_CREDENTIAL_ID", "OS_REGION_NAME", "OS_INTERFACE"),
)
"""Variables that make the name of a file; none of them is a secret."""
NAME_BYTES = 16
FILES = ("clouds", "secure", "clouds-public")
SUFFIXES = (".yaml", ".yml", ".json")


class Token:
    """A token of Keystone, and where it can be used.

    url          the API's, without a version
    expires_at   seconds since the epoch
    bundle       the file of the certificates to trust; None if the URL is not https
    """

    def __init__(
        self,
        url: str,
        token: str,
        expires_at: int,
        bundle: str | None = None,
    ) -> None:
        self.url = url
        self.token = token
        self.expires_at = expires_at
        self.bundle = bundle


class Cache:
    """The place of one token in the cache. *home* is the folder that HOME names."""

    def __init__(self, folder: str, name: str, credentials: bytes, home: str = "/") -> None:
        self._folder = folder
        self._home = home
        self._name = name
        self._credentials = credentials

    def read(self) -> Token | None:
        """Return the token, or None if there is no valid one for these credentials."""
        try:
            folder = self._open_folder()
        except OSError:
            return None
        try:
            content = _read_private(folder, self._name)
        finally:
            os.close(folder)
        return None if content is None else _decode(content, self._credentials, time.time())

    def write(self, token: Token) -> None:
        """Store *token*, and remove the files of tokens that have expired. Does nothing where it cannot be stored."""
        try:
            folder = self._make_folder()
        except OSError:
            return
        temporary = f".{os.urandom(8).hex()}"
        try:
            _remove_expired(folder)
            content = _encode(token, self._credentials)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(content)
            os.rename(temporary, self._name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            _unlink(folder, temporary)
        finally:
            os.close(folder)

    def drop(self, token: Token) -> None:
        """Remove *token*, unless another has been stored meanwhile."""
        found = self.read()
        if found is None or found.token != token.token:
            return
        try:
            folder = self._open_folder()
        except OSError:
            return
        _unlink(folder, self._name)
        os.close(folder)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Within the block, make other processes that want the same token wait, for `PATIENCE` seconds at most."""
        import fcntl

        try:
            folder = self._make_folder()
        except OSError:
            yield
            return
        try:
            deadline = time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(POLL)
                except OSError:
                    break  # a file system without locks
            yield
        finally:
            os.close(folder)  # which unlocks it

    def _make_folder(self) -> int:
        """Return a descriptor of the folder, which is made if it is not there. Raises `OSError`.

        It is made below a folder of this user's own, or of root's, such as /tmp, and only if the home is one, too:
        in another user's home, root may have left a `.cache` that is root's own.
        """
        if not {_owner(self._home), _owner(self._folder)} <= {os.geteuid(), 0}:
            raise PermissionError(self._folder)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103 - pathlib is not loaded
        return self._open_folder()

    def _open_folder(self) -> int:
        """Return a descriptor of the folder. Raises `OSError` unless it is this user's own and closed to others."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        if not _is_private(os.fstat(folder)):
            os.close(folder)
            raise PermissionError(self._folder)
        return folder


def find(environment: Mapping[str, str]) -> Cache | None:
    """Return the place for the token of the credentials in *environment*; None if their tokens are not cached."""
    home = environment.get("HOME")
    if not home or any(environment.get(name) for name in PROXIES):
        return None
    credentials = _credentials(environment, home)
    if credentials is None:
        return None
    base = environment.get("XDG_CACHE_HOME", "")
    folder = f"{base if base.startswith('/') else f'{home}/.cache'}/gsaas"
    return Cache(folder, _name(environment), credentials, home)


def configuration_files(environment: Mapping[str, str], home: str) -> Iterator[str]:
    """Yield the path of every file in which the SDK may look for clouds, in a fixed order.

    openstack.config.loader has the same list; a file more than it reads does no harm.
    """
    for name in ("OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE"):
        if environment.get(name):
            yield environment[name]
    folders = ["."]
    if environment.get("XDG_CONFIG_HOME"):
        folders.append(f"{environment['XDG_CONFIG_HOME']}/openstack")
    if environment.get("SNAP_REAL_HOME"):
        folders.append(f"{environment['SNAP_REAL_HOME']}/.config/openstack")
    folders.append(f"{home}/.config/openstack")
    system = environment.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    folders += [f"{folder}/openstack" for folder in system.removesuffix(":").split(":")]
    folders.append("/etc/openstack")
    for folder in folders:
        for name in FILES:
            for suffix in SUFFIXES:
                yield f"{folder}/{name}{suffix}"


def _credentials(environment: Mapping[str, str], home: str) -> bytes | None:
    """Return all that describes the credentials, to be hashed; None if a file of it is not a plain one."""
    pairs = [
        os.fsencode(f"{name}={value}")
        for name, value in environment.items()
        if name.startswith("OS_") or name in AUTHORITIES
    ]
    pieces = sorted(pairs)
    for path in configuration_files(environment, home):
        try:
            content = _read_plain(path)
        except OSError:
            continue  # the SDK reads the others then, too
        if content is None:
            return None
        pieces += [os.fsencode(path), content]
    return _join(pieces)


def _join(pieces: list[bytes]) -> bytes:
    """Return *pieces* joined; different pieces give different results."""
    return b"".join(b"%d:%s" % (len(piece), piece) for piece in pieces)


def _name(environment: Mapping[str, str]) -> str:
    from hashlib import sha256

    pieces = [os.fsencode(environment.get(name, "")) for name in NAMING]
    return f"{sha256(_join(pieces)).hexdigest()[: 2 * NAME_BYTES]}.json"


def _prove(credentials: bytes, salt: bytes) -> str:
    from hashlib import pbkdf2_hmac

    return pbkdf2_hmac("sha256", credentials, salt, ITERATIONS).hex()


def _encode(token: Token, credentials: bytes) -> bytes:
    salt = os.urandom(SALT_BYTES)
    document = {
        "version": VERSION,
        "expires_at": token.expires_at,
        "salt": salt.hex(),
        "proof": _prove(credentials, salt),
        "url": token.url,
        "bundle": token.bundle,
        "token": token.token,
    }
    return json.dumps(document).encode()


def _decode(content: bytes, credentials: bytes, now: float) -> Token | None:
    """Return the token in a file; None if it is not valid, has expired, or belongs to other credentials."""
    try:
        document: dict[str, Any] = json.loads(content)
        salt = bytes.fromhex(document["salt"])
        found = Token(
            document["url"], document["token"], document["expires_at"], document["bundle"]
        )
        valid = document["version"] == VERSION and found.expires_at > now + MARGIN
        valid = valid and _is_usable(found) and len(salt) == SALT_BYTES
        return found if valid and document["proof"] == _prove(credentials, salt) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _is_usable(found: Token) -> bool:
    """Return whether this token can be sent to the URL, and its certificate verified. Raises what a bad file raises."""
    scheme = found.url.partition("://")[0]
    if scheme == "https" and not isinstance(found.bundle, str):
        return False
    return scheme in ("http", "https") and found.token.isascii() and found.token.isprintable()


def _read_private(folder: int, name: str) -> bytes | None:
    """Return the content of a file of the cache; None if there is none that may be used."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
            metadata = os.fstat(file.fileno())
            if not stat.S_ISREG(metadata.st_mode) or not _is_private(metadata):
                return None
            content = file.read(MAX_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= MAX_BYTES else None


def _read_plain(path: str) -> bytes | None:
    """Return the content of a file; None if it is not regular, or too large. Raises `OSError`."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        content = file.read(MAX_CONFIGURATION + 1)
    return content if len(content) <= MAX_CONFIGURATION else None


def _is_private(metadata: os.stat_result) -> bool:
    return metadata.st_uid == os.geteuid() and not metadata.st_mode & 0o077


def _owner(path: str) -> int:
    """Return the user id of the owner of *path*, or of the nearest folder above it that exists. Raises `OSError`."""
    while True:
        try:
            return os.stat(path).st_uid  # noqa: PTH116 - pathlib is not loaded
        except FileNotFoundError:
            path = os.path.dirname(path) or "."  # noqa: PTH120


def _remove_expired(folder: int) -> None:
    for name in os.listdir(folder):
        content = _read_private(folder, name) if name.endswith(".json") else None
        if content is not None and _expiry(content) < time.time():
            _unlink(folder, name)


def _expiry(content: bytes) -> float:
    """Return when the token in a file expires; 0 if the file does not say so."""
    try:
        return float(json.loads(content)["expires_at"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return 0.0


def _unlink(folder: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)
