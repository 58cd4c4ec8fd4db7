"""The way to the API of an OpenStack cloud: Keystone gives the token and knows the address.

All that other OpenStack clients understand is understood here, because the SDK reads it: clouds.yaml
and OS_CLOUD, the OS_* variables, application credentials, regions, interfaces, CA files. A token that
expires in the middle is replaced by a new one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import yaml
from keystoneauth1 import exceptions as keystone
from keystoneauth1.session import Session
from openstack import exceptions as sdk
from openstack.config import OpenStackConfig
from openstack.config.cloud_region import CloudRegion
from openstack.connection import Connection

from gsaas.client.errors import ClientError, CredentialsError, UnreachableError
from gsaas.client.transport import TIMEOUT, Response, Transport

for _library in ("keystoneauth", "openstack"):
    # What they would print to standard error on their own is said here in a sentence.
    logging.getLogger(_library).addHandler(logging.NullHandler())

SERVICE_TYPE = "gpu-scheduling"
UUID_LENGTH = 36
BESIDE_CLOUDS_YAML = {
    "OS_CACERT": "cacert",
    "OS_INTERFACE": "interface",
    "OS_REGION_NAME": "region_name",
}
"""Variables that go before what clouds.yaml says of the cloud that OS_CLOUD names.

The SDK leaves that to its callers, and other clients do it.
"""


class CloudCredentials:
    """What the environment and clouds.yaml say of a cloud and of us."""

    def connect(self) -> Transport:
        """Raises `CredentialsError` if what they say is not enough; asks nobody yet."""
        try:
            said = {
                field: os.environ[name]
                for name, field in BESIDE_CLOUDS_YAML.items()
                if os.environ.get(name)
            }
            region = OpenStackConfig(app_name="gsaas").get_one(**said)
            return CloudTransport(region, region.get_session())
        except (sdk.SDKException, keystone.ClientException, yaml.YAMLError, OSError) as error:
            raise CredentialsError(
                f"OS_CLOUD or the OS_ variables do not describe a cloud: {_said(error)}"
            ) from error


class CloudTransport(Transport):
    """Requests through a keystoneauth session."""

    def __init__(self, region: CloudRegion, session: Session) -> None:
        self._region = region
        self._session = session
        self._found: str | None = None

    def send(
        self, method: str, path: str, content: bytes | None, headers: dict[str, str]
    ) -> Response:
        url = self._endpoint() + path
        response = self._ask(
            lambda: self._session.request(
                url,
                method,
                data=content,
                headers=headers,
                raise_exc=False,
                timeout=TIMEOUT,
            ),
            f"the GSaaS API at {url.removesuffix(path)}",
        )
        return Response(response.status_code, response.reason, response.headers, response.content)

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
            return self._ask(find, f"the cloud's {noun} service").id
        except sdk.NotFoundException:
            raise ClientError(
                f"there is no {noun} {name} in this cloud, or not for this project"
            ) from None
        except sdk.DuplicateResource:
            raise ClientError(f"several {noun}s are named {name}; say which by its id") from None
        except sdk.SDKException as error:
            raise ClientError(
                f"the {noun} {name} could not be looked up: {_said(error)}"
            ) from error

    def _endpoint(self) -> str:
        """Where the catalogue has the API, with or without its version; asked for once."""
        if self._found is None:
            self._found = self._look_up().rstrip("/").removesuffix("/v1").rstrip("/")
        return self._found

    def _look_up(self) -> str:
        region = self._region
        if override := region.get_endpoint(SERVICE_TYPE):
            return override
        where = {
            "region_name": region.get_region_name(SERVICE_TYPE),
            "interface": region.get_interface(SERVICE_TYPE),
        }
        try:
            found = self._ask(
                lambda: self._session.get_endpoint(service_type=SERVICE_TYPE, **where),
                self._keystone(),
            )
        except keystone.EmptyCatalog:
            raise CredentialsError(
                "your credentials are for no project: OS_PROJECT_NAME (or project_name in clouds.yaml) "
                "says which"
            ) from None
        except keystone.EndpointNotFound:
            found = None
        if found is None:
            raise ClientError(
                f"the cloud's catalogue has no {where['interface'] or 'public'} endpoint of type "
                f"{SERVICE_TYPE} in region {where['region_name'] or '(any)'}: GSaaS is not there, or "
                "OS_REGION_NAME or OS_INTERFACE mean another one"
            )
        return found

    def _ask(self, question: Callable[[], Any], whom: str) -> Any:
        """Ask, and say in a sentence what kept us from an answer.

        What the catalogue or the SDK has to say goes through.
        """
        try:
            return question()
        except (keystone.CatalogException, sdk.SDKException):
            raise
        except keystone.Unauthorized as error:
            raise CredentialsError(
                f"{self._keystone()} does not accept your credentials: {_said(error)}"
            ) from error
        except keystone.SSLError as error:
            raise UnreachableError(
                f"no secure connection to {whom}: {_reason(error)}; OS_CACERT (or cacert in "
                "clouds.yaml) names the file of the authorities to trust, where they are not those that "
                "everybody knows: /etc/ssl/certs/ca-certificates.crt, say, for those of your system"
            ) from error
        except (keystone.ConnectionError, keystone.DiscoveryFailure) as error:
            raise UnreachableError(f"{whom} does not answer: {_reason(error)}") from error
        except (keystone.ClientException, OSError) as error:
            raise CredentialsError(f"{whom} could not be asked: {_said(error)}") from error
        except Exception as error:
            if type(error) is not Exception:
                raise
            # keystoneauth's way to say that something like a password is missing
            raise CredentialsError(f"your credentials are not complete: {_said(error)}") from error

    def _keystone(self) -> str:
        return f"Keystone at {self._region.config['auth'].get('auth_url', 'an unknown address')}"


def _said(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")


def _reason(error: BaseException) -> str:
    """What the operating system or the TLS library said, under all that was wrapped around it."""
    cause: BaseException | None = error
    while cause is not None:
        if told := getattr(cause, "verify_message", None) or getattr(cause, "strerror", None):
            return told
        cause = cause.__cause__ or cause.__context__
    return _said(error)
