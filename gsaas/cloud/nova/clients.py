# SPDX-License-Identifier: Apache-2.0
"""Clients of Nova, Neutron, Glance and Placement, authenticated as the service user or as an API caller.

1. Requests to Nova go through python-novaclient, all others through openstacksdk. All requests of a process share one
   connection pool.
2. GSaaS finds and deletes servers of all projects, and chooses hosts, as the service user ([service_user]).
3. GSaaS makes servers and checks requests with the caller's token. Each such request carries a service token as well.
   So Keystone accepts a caller's token for a while after it has expired, which may happen during a launch, and
   operators can allow the pair of tokens actions that a caller's token alone does not allow.
4. This module translates the exceptions of these libraries into GSaaS's; no other module catches them. Messages for
   tenants name services, never their addresses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import keystoneauth1.exceptions
import novaclient.client
import novaclient.exceptions
import openstack.connection
import openstack.exceptions
from keystoneauth1 import discover, loading, plugin, service_token
from keystoneauth1.session import Session
from oslo_config import cfg

from gsaas import exceptions
from gsaas.conf import nova as options

LOG = logging.getLogger(__name__)

MICROVERSION = "2.90"
"""Microversion of Nova's API, of release Xena: a request can name a server's host (2.74) and its hostname (2.90)."""
_SERVICE_TYPES = ["image", "network", "placement"]


@dataclass(frozen=True)
class Clients:
    """Clients of all services, authenticated as one user."""

    nova: novaclient.client.Client
    sdk: openstack.connection.Connection


class ClientFactory:
    """Makes clients lazily: nothing connects before the first request, so a process may fork after making one."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raise `ValueError` if [service_user] does not say which user the service is."""
        options.register_clients(conf)
        self._conf = conf
        try:
            auth = loading.load_auth_from_conf_options(conf, options.SERVICE_USER)
        except keystoneauth1.exceptions.ClientException as error:
            raise ValueError(f"[{options.SERVICE_USER}] cannot be used: {error}") from error
        if auth is None:
            raise ValueError(
                f"[{options.SERVICE_USER}] has no auth_type: set it, and the user as which GSaaS asks Nova"
            )
        self._auth: plugin.BaseAuthPlugin = auth
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._service_clients: Clients | None = None
        self._discovery_cache: dict[str, Any] = {}
        """API versions of the services, by URL: shared by all sessions, or each launch would discover them anew."""

    def for_service(self) -> Clients:
        """Return clients that are authenticated as the service user. Every call returns the same ones."""
        with self._lock:
            if self._service_clients is None:
                self._service_clients = self._clients(self._shared_session())
            return self._service_clients

    def warm_up(self) -> None:
        """Log in, and send one small request to each service that checks use; raises what the libraries raise.

        The first real request then finds all endpoints and API versions known and the service token cached: a service
        that sees a token for the first time validates it with Keystone, which takes longer than any answer.
        """
        clients = self.for_service()
        run_in_parallel(
            [
                lambda: clients.nova.flavors.list(limit=1),
                lambda: next(clients.sdk.image.images(limit=1, paginated=False), None),
                lambda: next(clients.sdk.network.networks(limit=1, paginated=False), None),
            ]
        )

    def for_caller(self, token: str, project_id: str | None) -> Clients:
        """Return clients that send *token*, a caller's, for *project_id*, together with a service token."""
        with self._lock:
            shared = self._shared_session()
        caller_auth = _CallerAuth(token, project_id, self._auth)
        wrapped = _WithServiceToken(caller_auth, self._auth)
        return self._clients(_session_like(shared, wrapped, self._discovery_cache))

    def _shared_session(self) -> Session:
        """Return the session whose connections all others use; call it with the lock acquired."""
        if self._session is None:
            configured = loading.load_session_from_conf_options(self._conf, options.SERVICE_USER)
            self._session = _session_like(configured, self._auth, self._discovery_cache)
        return self._session

    def _clients(self, session: Session) -> Clients:
        adapter = loading.load_adapter_from_conf_options(self._conf, "nova", session=session)
        nova = novaclient.client.Client(
            MICROVERSION,
            session=session,
            service_type=adapter.service_type,
            endpoint_type=adapter.interface,
            region_name=adapter.region_name,
            endpoint_override=adapter.endpoint_override,
            connect_retries=adapter.connect_retries,
            status_code_retries=adapter.status_code_retries,
        )
        sdk = openstack.connection.Connection(
            session=session, oslo_conf=self._conf, service_types=_SERVICE_TYPES
        )
        return Clients(nova, sdk)


class _NoToken(keystoneauth1.exceptions.ClientException):
    """Keystone issued no token, so the request was not sent to the service that it was for."""


class _Session(Session):
    """A session that fetches a new catalogue, once, when the one it has lacks an endpoint.

    A catalogue arrives with a token, so it may be older than the endpoint that is looked up. The session also raises
    `_NoToken` for a failure of Keystone, so that callers can distinguish it from a failure of the requested service.
    """

    def get_auth_headers(self, auth: plugin.BaseAuthPlugin | None = None) -> dict[str, str] | None:
        try:
            return super().get_auth_headers(auth)
        except keystoneauth1.exceptions.ClientException as error:
            raise _NoToken(str(error)) from error

    def get_endpoint(self, auth: plugin.BaseAuthPlugin | None = None, **criteria: Any) -> Any:
        return self._look_up(super().get_endpoint, auth, criteria)

    def get_endpoint_data(self, auth: plugin.BaseAuthPlugin | None = None, **criteria: Any) -> Any:
        return self._look_up(super().get_endpoint_data, auth, criteria)

    def _look_up(
        self,
        look_up: Callable[..., Any],
        auth: plugin.BaseAuthPlugin | None,
        criteria: dict[str, Any],
    ) -> Any:
        try:
            return look_up(auth=auth, **criteria)
        except keystoneauth1.exceptions.CatalogException:
            if not self.invalidate(auth):
                raise  # no newer catalogue is available
        return look_up(auth=auth, **criteria)


def _session_like(
    session: Session, auth: plugin.BaseAuthPlugin, discovery_cache: dict[str, Any]
) -> _Session:
    """Return a session that authenticates with *auth*, and shares the connections of *session*.

    The API versions that it discovers are kept in *discovery_cache*.
    """
    return _Session(
        auth=auth,
        session=session.session,
        verify=session.verify,
        cert=session.cert,
        timeout=session.timeout,
        discovery_cache=discovery_cache,
    )


class _CallerAuth(plugin.BaseAuthPlugin):
    """Authenticates with a caller's token, which cannot be renewed. Endpoints are those of *catalogue*."""

    def __init__(
        self, token: str, project_id: str | None, catalogue: plugin.BaseAuthPlugin
    ) -> None:
        super().__init__()
        self._token = token
        self._project_id = project_id
        self._catalogue = catalogue

    def get_token(self, session: Session) -> str:
        return self._token

    def get_project_id(self, session: Session) -> str | None:
        return self._project_id

    def get_endpoint(self, session: Session, **kwargs: Any) -> str | None:
        return self._catalogue.get_endpoint(session, **kwargs)

    def get_endpoint_data(self, session: Session, **kwargs: Any) -> discover.EndpointData | None:
        return self._catalogue.get_endpoint_data(session, **kwargs)

    def get_api_major_version(
        self, session: Session, **kwargs: Any
    ) -> tuple[int | float, ...] | None:
        return self._catalogue.get_api_major_version(session, **kwargs)


class _WithServiceToken(service_token.ServiceTokenAuthWrapper):
    """Adds a service token to a caller's requests, and finds endpoints and their versions as *user_auth* does.

    keystoneauth's own class asks *user_auth* for both only in releases that are newer than those OpenStack constrains.
    """

    def get_endpoint_data(self, session: Session, **kwargs: Any) -> discover.EndpointData | None:
        return self.user_auth.get_endpoint_data(session, **kwargs)

    def get_api_major_version(
        self, session: Session, **kwargs: Any
    ) -> tuple[int | float, ...] | None:
        return self.user_auth.get_api_major_version(session, **kwargs)


def run_in_parallel(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """Call *functions* in one thread each; return their results in order, or raise what the first failed one raised."""
    if len(functions) == 1:
        return [functions[0]()]
    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(each) for each in functions]]


class RequestRejected(Exception):
    """A service rejected a request: an HTTP status from 400 to 499. The text is the service's own message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer."""


@contextmanager
def translated_errors(service: str) -> Iterator[None]:
    """Translate what the libraries raise in the block, around each request to *service*.

    Raises `RequestRejected` if the service rejected the request, `CloudUnavailable` if it failed or did not answer.
    """
    try:
        yield
    except novaclient.exceptions.ClientException as error:
        _raise_for_status(service, error, error.code, error.message)
    except openstack.exceptions.HttpException as error:
        _raise_for_status(service, error, error.status_code, error.details or error.message)
    except (_NoToken, keystoneauth1.exceptions.HttpError) as error:
        # Only requests to Keystone itself (for a service token, or for an endpoint) raise these.
        _raise_unavailable("Keystone", error)
    except (
        openstack.exceptions.SDKException,
        keystoneauth1.exceptions.ClientException,
    ) as error:
        _raise_unavailable(service, error)


def _raise_for_status(service: str, error: Exception, status: int | None, message: Any) -> NoReturn:
    if status is None or status >= 500:
        _raise_unavailable(service, error, status)
    if status == 401:
        raise RequestRejected(
            status, "your token is not valid any more; log in again, and launch again"
        ) from error
    raise RequestRejected(status, str(message or error).strip()) from error


def _raise_unavailable(service: str, error: Exception, status: int | None = None) -> NoReturn:
    LOG.warning("%s: %s", service, error)
    what = "does not answer" if status is None else f"failed (HTTP {status})"
    raise exceptions.CloudUnavailable(reason=f"{service} {what}") from error
