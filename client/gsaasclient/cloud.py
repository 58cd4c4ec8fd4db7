# SPDX-License-Identifier: Apache-2.0
"""The transport to the API of an OpenStack cloud: Keystone issues the token, and its catalogue has the URL.

The SDK reads the configuration, so it is the same as for other OpenStack clients: clouds.yaml and OS_CLOUD, the OS_*
variables, application credentials, regions, interfaces and CA files. A token that expires is replaced by a new one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certifi
import yaml
from keystoneauth1 import exceptions as keystone
from keystoneauth1 import identity
from keystoneauth1.session import Session
from openstack import exceptions as sdk
from openstack.config import OpenStackConfig
from openstack.config.cloud_region import CloudRegion
from openstack.connection import Connection

from gsaasclient import token_cache, vms
from gsaasclient.errors import (
    ClientError,
    ConnectionLostError,
    CredentialsError,
    UnreachableError,
)
from gsaasclient.transport import Response, Transport

for _library in ("keystoneauth", "openstack"):
    # Without a handler they print their errors to standard error, where our own messages say the same.
    logging.getLogger(_library).addHandler(logging.NullHandler())

SERVICE_TYPE = "gpu-scheduling"
UUID_LENGTH = 36
UNAUTHORIZED = 401
VARIABLES_OVER_CLOUDS_YAML = {
    "OS_CACERT": "cacert",
    "OS_INTERFACE": "interface",
    "OS_REGION_NAME": "region_name",
}
"""Variables that override the entry of clouds.yaml that OS_CLOUD names, and the fields that they override.

The SDK leaves that to its callers, and the openstack client does it as well.
"""

CACHED_PLUGINS = (
    *(identity.Password, identity.V3Password, identity.V3ApplicationCredential, identity.V3TOTP),
    *(identity.Token, identity.V3Token),
)
"""Ways to authenticate that depend on options alone: on variables and on the files of the configuration."""


class CloudCredentials:
    """Keystone's credentials, as the environment and clouds.yaml describe them.

    *cache* is where the token is stored; None if it is not to be stored.
    """

    def __init__(self, cache: token_cache.Cache | None = None) -> None:
        self._cache = cache

    def connect(self) -> CloudTransport:
        """Return a transport; no request is sent yet. Raises `CredentialsError` if the description is not complete."""
        try:
            overrides: dict[str, Any] = {
                field: os.environ[name]
                for name, field in VARIABLES_OVER_CLOUDS_YAML.items()
                if os.environ.get(name)
            }
            config = OpenStackConfig(app_name="gsaas")
            region = config.get_one(**overrides)
            cache = self._cache if _is_hashed(config) else None
            return CloudTransport(region, region.get_session(), cache)
        except (sdk.SDKException, keystone.ClientException, yaml.YAMLError, OSError) as error:
            raise CredentialsError(
                f"OS_CLOUD or the OS_ variables do not describe a cloud: {_message(error)}"
            ) from error


class CloudTransport(Transport):
    """Requests through a keystoneauth session."""

    def __init__(
        self, region: CloudRegion, session: Session, cache: token_cache.Cache | None = None
    ) -> None:
        self._region = region
        self._session = session
        self._cache = cache
        self._stored: str | None = None
        """The token in the cache, if this transport has stored one."""
        self._url: str | None = None

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        base = self._endpoint()
        url = base + path
        response = self._call(
            lambda: self._session.request(
                url,
                method,
                data=content,
                headers=headers,
                raise_exc=False,
                timeout=self.timeout,
            ),
            f"the GSaaS API at {base}",
        )
        if self._cache is not None and response.status_code != UNAUTHORIZED:
            self._store(self._cache, base)
        return Response(response.status_code, response.reason, response.headers, response.content)

    def sign_in(self) -> None:
        """Authenticate, and store the token without a request to the API. Raises `ClientError`."""
        base = self._endpoint()
        self._call(lambda: self._session.get_token(), self._keystone())
        if self._cache is not None:
            self._store(self._cache, base)

    def _store(self, cache: token_cache.Cache, url: str) -> None:
        """Store the token that the session has now, if it is one that others can use in its place."""
        plugin: Any = self._session.auth
        if self._session.cert or type(plugin) not in CACHED_PLUGINS:
            return
        access = plugin.get_access(self._session)
        if access.auth_token == self._stored or access.expires is None:
            return
        self._stored = access.auth_token
        token = token_cache.Token(url, access.auth_token, int(access.expires.timestamp()))
        if url.startswith("https:"):
            try:
                token.bundle = _bundle(self._session)
            except FileNotFoundError:
                return
        cache.write(token)

    def resolve(self, noun: str, name: str) -> str:
        if len(name) == UUID_LENGTH and name.count("-") == 4:
            return name
        cloud = Connection(config=self._region)
        find = {
            "image": lambda: cloud.image.find_image(name, ignore_missing=False),
            "flavor": lambda: cloud.compute.find_flavor(name, ignore_missing=False),
            "network": lambda: cloud.network.find_network(name, ignore_missing=False),
        }[noun]
        try:
            found: str = self._call(find, f"the cloud's {noun} service").id
            return found
        except sdk.NotFoundException:
            raise ClientError(
                f"there is no {noun} {name} in this cloud, or not for this project"
            ) from None
        except sdk.DuplicateResource:
            raise ClientError(f"several {noun}s are named {name}; name one by its id") from None
        except sdk.SDKException as error:
            raise ClientError(
                f"the {noun} {name} could not be looked up: {_message(error)}"
            ) from error

    def vm(self, server_id: str) -> vms.Vm | None:
        cloud = Connection(config=self._region)
        try:
            found: vms.Vm = self._call(lambda: vms.look_up(cloud, server_id), "the cloud")
            return found
        except (ClientError, sdk.SDKException, keystone.ClientException):
            return None  # the VM is there all the same

    def _endpoint(self) -> str:
        """Return the URL of the API without the version; it is looked up once."""
        if self._url is None:
            self._url = self._look_up().rstrip("/").removesuffix("/v1").rstrip("/")
        return self._url

    def _look_up(self) -> str:
        """Return the URL that the configuration or Keystone's catalogue has for the API.

        Raises `CredentialsError` for credentials without a project, and `ClientError` if there is no URL.
        """
        region = self._region
        override: str | None
        if override := region.get_endpoint(SERVICE_TYPE):
            return override
        where: dict[str, Any] = {
            "region_name": region.get_region_name(SERVICE_TYPE),
            "interface": region.get_interface(SERVICE_TYPE),
        }
        try:
            found: str | None = self._call(
                lambda: self._session.get_endpoint(service_type=SERVICE_TYPE, **where),
                self._keystone(),
            )
        except keystone.EmptyCatalog:
            raise CredentialsError(
                "your credentials name no project: set OS_PROJECT_NAME, or project_name in clouds.yaml"
            ) from None
        except keystone.EndpointNotFound:
            found = None
        if found is None:
            raise ClientError(
                f"the cloud's catalogue has no {where['interface'] or 'public'} endpoint of type "
                f"{SERVICE_TYPE} in region {where['region_name'] or '(any)'}: GSaaS is not installed there, or "
                "OS_REGION_NAME or OS_INTERFACE is wrong"
            )
        return found

    def _call(self, request: Callable[[], Any], service: str) -> Any:
        """Return what *request* returns, and turn the errors of keystoneauth into `ClientError`.

        *service* names the service in messages. Errors of the catalogue and of the SDK are raised as they are.
        """
        try:
            return request()
        except (keystone.CatalogException, sdk.SDKException):
            raise
        except keystone.Unauthorized as error:
            raise CredentialsError(
                f"{self._keystone()} does not accept your credentials: {_message(error)}"
            ) from error
        except keystone.SSLError as error:
            raise UnreachableError(
                f"no secure connection to {service}: {_root_cause(error)}; if its certificate is not signed by a "
                "public authority, OS_CACERT (or cacert in clouds.yaml) names the file of authorities to trust, "
                "such as /etc/ssl/certs/ca-certificates.crt for those of your system"
            ) from error
        except keystone.ConnectFailure as error:
            # What keystoneauth raises for connections that are refused, and for those that end too early.
            raise ConnectionLostError(f"{service} does not answer: {_root_cause(error)}") from error
        except (keystone.ConnectionError, keystone.DiscoveryFailure) as error:
            raise UnreachableError(f"{service} does not answer: {_root_cause(error)}") from error
        except (keystone.ClientException, OSError) as error:
            raise CredentialsError(f"the request to {service} failed: {_message(error)}") from error
        except Exception as error:
            if type(error) is not Exception:
                raise
            # keystoneauth raises a bare Exception if, for instance, the password is missing.
            raise CredentialsError(
                f"your credentials are not complete: {_message(error)}"
            ) from error

    def _keystone(self) -> str:
        return f"Keystone at {self._region.config['auth'].get('auth_url', 'an unknown address')}"


def _is_hashed(config: OpenStackConfig) -> bool:
    """Return whether the cache knows each file that *config* was read from: a token depends on what is in it."""
    paths = token_cache.configuration_files(os.environ, os.environ.get("HOME", ""))
    known = {Path(path).resolve() for path in paths}
    read = (config.config_filename, config.secure_config_filename)
    return all(path is None or Path(path).resolve() in known for path in read)


def _bundle(session: Session) -> str:
    """Return the file of certificates that *session* verifies servers with.

    Raises `FileNotFoundError` if it does not verify them, or not with a file that is named wherever the caller is.
    """
    path = session.verify
    if path is True:  # then requests has its own order
        named = (os.environ.get(name) for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"))
        path = next(filter(None, named), None) or certifi.where()
    if not path or not Path(path).is_absolute() or not Path(path).is_file():
        raise FileNotFoundError(path)
    return path


def _message(error: BaseException) -> str:
    """Return the message of *error* in one line."""
    return " ".join(str(error).split()).rstrip(".")


def _root_cause(error: BaseException) -> str:
    """Return the message of the operating system or the TLS library that *error* wraps, or its own."""
    cause: BaseException | None = error
    while cause is not None:
        message: str | None = getattr(cause, "verify_message", None) or getattr(
            cause, "strerror", None
        )
        if message:
            return message
        cause = cause.__cause__ or cause.__context__
    return _message(error)
