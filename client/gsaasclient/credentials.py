# SPDX-License-Identifier: Apache-2.0
"""Where the client finds the API and its token.

The first of these that exists is used, so that a file which is named explicitly goes before everything else in the
environment:

1. the file that GSAAS_CREDENTIALS names,
2. Keystone, as OS_CLOUD (an entry of clouds.yaml) or OS_AUTH_URL and the other OS_ variables say,
3. the file that gsaas-standalone writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from gsaasclient.errors import CredentialsError

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from gsaasclient.transport import Transport

CREDENTIALS_VARIABLE = "GSAAS_CREDENTIALS"
DEFAULT_CREDENTIALS = "/run/gsaas/credentials.json"
KEYSTONE_VARIABLES = ("OS_CLOUD", "OS_AUTH_URL")


class Credentials:
    """The URL of the API, and the token of the caller."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    @classmethod
    def read(cls, path: str | Path) -> Credentials:
        """Read a JSON file: `{"url": "http://…", "token": "…"}`.

        Raises `CredentialsError` if it cannot be read, is not valid, or is readable by other users.
        """
        try:
            with Path(path).open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                document = json.load(file)
        except FileNotFoundError:
            hint = f"{CREDENTIALS_VARIABLE} names that file; without it, OS_CLOUD names a cloud"
            if str(path) == DEFAULT_CREDENTIALS:
                hint = _what_to_name()
            raise CredentialsError(f"there are no credentials at {path}; {hint}") from None
        except OSError as error:
            raise CredentialsError(
                f"the credentials in {path} cannot be read: {error.strerror}; "
                f"name a file of your own with {CREDENTIALS_VARIABLE}, or a cloud with OS_CLOUD"
            ) from None
        except ValueError as error:
            raise CredentialsError(f"{path} is not JSON: {error}") from None
        if mode & 0o077:
            raise CredentialsError(
                f"other users can read the token in {path}; make it readable for you alone: chmod 600 {path}"
            )
        try:
            url, token = document["url"], document["token"]
        except (KeyError, TypeError):
            url = token = None
        if not isinstance(url, str) or not isinstance(token, str):
            raise CredentialsError(f'{path} should read {{"url": "http://…", "token": "…"}}')
        if not _is_http(url):
            raise CredentialsError(
                f"the url in {path} is {url!r}; it should be like http://host:9870"
            )
        return cls(url, token)

    def connect(self) -> Transport:
        """Return a transport; no connection is opened yet."""
        from gsaasclient.direct import DirectTransport

        return DirectTransport(self.url, self.token)


class KeystoneCredentials:
    """The credentials in Keystone's variables. A token that an earlier command has cached is used while it is valid."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def connect(self) -> Transport:
        """Return a transport; no request is sent yet. Raises `CredentialsError` if the variables are not complete.

        Where tokens are cached, the first request raises it.
        """
        from gsaasclient import token_cache

        cache = token_cache.find(self._environment)
        if cache is not None:
            from gsaasclient.cached import CachedTransport

            return CachedTransport(cache)
        from gsaasclient.cloud import CloudCredentials

        return CloudCredentials().connect()

    def renew(self) -> None:
        """Have a token in the cache, for a program that has removed one that had expired. Raises `ClientError`."""
        from gsaasclient import token_cache
        from gsaasclient.cloud import CloudCredentials

        cache = token_cache.find(self._environment)
        if cache is not None:
            with cache.alone():
                if cache.read() is None:
                    CloudCredentials(cache).connect().sign_in()


def find_credentials(environment: Mapping[str, str]) -> Credentials | KeystoneCredentials:
    """Return the credentials that the variables in *environment* name, or those of gsaas-standalone.

    Raises `CredentialsError` if there are none, or if a file of credentials is not valid.
    """
    path = environment.get(CREDENTIALS_VARIABLE)
    if not path and any(environment.get(name) for name in KEYSTONE_VARIABLES):
        return KeystoneCredentials(environment)
    return Credentials.read(path or DEFAULT_CREDENTIALS)


def are_two(environment: Mapping[str, str]) -> bool:
    """Return whether *environment* names a file of credentials, and Keystone's, which are not used then."""
    file = environment.get(CREDENTIALS_VARIABLE)
    return bool(file) and any(environment.get(name) for name in KEYSTONE_VARIABLES)


def _what_to_name() -> str:
    """Return what a user without credentials can do: with clouds.yaml, name one of its clouds."""
    clouds = _clouds(os.environ)
    known = f", one of {', '.join(clouds)}" if clouds else " of your clouds.yaml"
    return (
        f"name a cloud with OS_CLOUD{known}, or a file with {CREDENTIALS_VARIABLE}; gsaas-standalone writes "
        f"{DEFAULT_CREDENTIALS}"
    )


def _clouds(environment: Mapping[str, str]) -> list[str]:
    """Return the names of the clouds in the first configuration file of the SDK that has some."""
    # Imported here, because only a user without credentials needs it.
    import yaml

    from gsaasclient.token_cache import configuration_files

    for path in configuration_files(environment, environment.get("HOME", "/")):
        try:
            clouds = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["clouds"]
            if clouds:
                return sorted(str(name) for name in clouds)
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError):
            continue
    return []


def _is_http(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False
