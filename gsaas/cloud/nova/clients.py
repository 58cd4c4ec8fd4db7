"""Whom NovaCloud asks, and in whose name: clients of Nova, Neutron, Glance and Placement on one session.

1. Nova is spoken to through python-novaclient, the others through openstacksdk. All requests of a process share one
   pool of connections.
2. In the service's own name, servers of all projects are found and deleted, and hosts are chosen.
3. In a caller's name goes what the caller could do without us. Its token is sent together with one of the service's:
   so it is accepted a while after its end, if that comes during a launch, and operators may allow this pair things
   that they do not allow to callers alone.
4. What these libraries raise is turned into GSaaS's exceptions here; nobody else catches it. A sentence for tenants
   names services, never their addresses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import keystoneauth1.exceptions
import novaclient.client
import novaclient.exceptions
import openstack.connection
import openstack.exceptions
from keystoneauth1 import loading, plugin, service_token
from keystoneauth1.session import Session
from oslo_config import cfg

from gsaas import exceptions
from gsaas.conf import nova as options
from gsaas.context import RequestContext

LOG = logging.getLogger(__name__)

MICROVERSION = "2.90"
"""Of Nova's API, from release Xena on: a server's host can be named (2.74), its host name chosen (2.90)."""
_SERVICE_TYPES = ["image", "network", "placement"]


@dataclass(frozen=True)
class Clients:
    """The services, in one name."""

    nova: novaclient.client.Client
    sdk: openstack.connection.Connection


class ClientFactory:
    """Makes clients, once there is something to ask: nothing connects before a process forks."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """`ValueError` if [service_user] does not say who the service is."""
        options.register_clients(conf)
        self._conf = conf
        try:
            self._auth = loading.load_auth_from_conf_options(conf, options.SERVICE_USER)
        except keystoneauth1.exceptions.ClientException as error:
            raise ValueError(f"[{options.SERVICE_USER}] cannot be used: {error}") from error
        if self._auth is None:
            raise ValueError(
                f"[{options.SERVICE_USER}] has no auth_type: it says as whom GSaaS asks Nova"
            )
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._discovery_cache: dict[str, Any] = {}
        """Versions that the services offer, by URL: shared by all sessions, or each launch would ask for them anew."""
        self._service: Clients | None = None

    def service(self) -> Clients:
        """Clients in the service's own name; made once."""
        with self._lock:
            if self._service is None:
                self._service = self._clients(self._shared())
            return self._service

    def open(self) -> None:
        """Log in, and ask each service that checks need a small question; raises what their libraries raise.

        So the addresses and versions of all are known here, and our token there: whoever sees a token first asks
        Keystone about it, which takes longer than any answer.
        """
        service = self.service()
        at_once(
            [
                lambda: service.nova.flavors.list(limit=1),
                lambda: next(service.sdk.image.images(limit=1, paginated=False), None),
                lambda: next(service.sdk.network.networks(limit=1, paginated=False), None),
            ]
        )

    def caller(self, context: RequestContext) -> Clients:
        """Clients in the name of whoever *context* says."""
        with self._lock:
            shared = self._shared()
        callers = _CallersToken(context.auth_token, context.project_id, self._auth)
        wrapped = service_token.ServiceTokenAuthWrapper(callers, self._auth)
        return self._clients(_like(shared, wrapped, self._discovery_cache))

    def _shared(self) -> Session:
        if self._session is None:
            configured = loading.load_session_from_conf_options(self._conf, options.SERVICE_USER)
            self._session = _like(configured, self._auth, self._discovery_cache)
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
    """Keystone gave us no token, so that no service was asked."""


class _Session(Session):
    """Believes a catalogue that lacks an address only if it has just been written.

    It came with our token, and may be older than the service that is looked for. A failure of Keystone is told from
    one of the service that was to be asked.
    """

    def get_auth_headers(self, auth: plugin.BaseAuthPlugin | None = None) -> dict[str, str] | None:
        try:
            return super().get_auth_headers(auth)
        except keystoneauth1.exceptions.ClientException as error:
            raise _NoToken(str(error)) from error

    def get_endpoint(self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any) -> Any:
        return self._look_up(super().get_endpoint, auth, wanted)

    def get_endpoint_data(self, auth: plugin.BaseAuthPlugin | None = None, **wanted: Any) -> Any:
        return self._look_up(super().get_endpoint_data, auth, wanted)

    def _look_up(
        self,
        look_up: Callable[..., Any],
        auth: plugin.BaseAuthPlugin | None,
        wanted: dict[str, Any],
    ) -> Any:
        try:
            return look_up(auth=auth, **wanted)
        except keystoneauth1.exceptions.CatalogException:
            if not self.invalidate(auth):
                raise
        return look_up(auth=auth, **wanted)


def _like(
    session: Session, auth: plugin.BaseAuthPlugin, discovery_cache: dict[str, Any]
) -> _Session:
    """Return a session with the credentials of *auth* that shares the connections of *session*.

    The versions that it finds go to *discovery_cache*.
    """
    return _Session(
        auth=auth,
        session=session.session,
        verify=session.verify,
        cert=session.cert,
        timeout=session.timeout,
        discovery_cache=discovery_cache,
    )


class _CallersToken(plugin.BaseAuthPlugin):
    """A token that somebody sent us: it cannot be renewed. Addresses are looked up as for the service."""

    def __init__(self, token: str, project_id: str, catalogue: plugin.BaseAuthPlugin) -> None:
        super().__init__()
        self._token = token
        self._project_id = project_id
        self._catalogue = catalogue

    def get_token(self, session: Session) -> str:
        return self._token

    def get_project_id(self, session: Session) -> str:
        return self._project_id

    def get_endpoint(self, session: Session, **kwargs: Any) -> str | None:
        return self._catalogue.get_endpoint(session, **kwargs)

    def get_endpoint_data(self, session: Session, **kwargs: Any) -> Any:
        return self._catalogue.get_endpoint_data(session, **kwargs)


def at_once(questions: Sequence[Callable[[], Any]]) -> list[Any]:
    """The answers to *questions*, asked side by side; raises what the first of them raised that did."""
    if len(questions) == 1:
        return [questions[0]()]
    with ThreadPoolExecutor(len(questions)) as pool:
        return [answer.result() for answer in [pool.submit(each) for each in questions]]


class Refused(Exception):
    """A service said no, in so many words."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        """The HTTP status of its answer."""


@contextmanager
def asking(service: str) -> Iterator[None]:
    """Around every question: raises `Refused` for a clear no, `CloudUnavailable` when there was no clear answer."""
    try:
        yield
    except novaclient.exceptions.ClientException as error:
        _raise(service, error, error.code, error.message)
    except openstack.exceptions.HttpException as error:
        _raise(service, error, error.status_code, error.details or error.message)
    except (_NoToken, keystoneauth1.exceptions.HttpError) as error:
        # Keystone, asked for our own token or for an address.
        _unavailable("Keystone", error)
    except (
        openstack.exceptions.SDKException,
        keystoneauth1.exceptions.ClientException,
    ) as error:
        _unavailable(service, error)


def _raise(service: str, error: Exception, status: int | None, said: Any) -> None:
    if status is None or status >= 500:
        _unavailable(service, error, status)
    if status == 401:
        raise Refused(
            status, "your token is not valid any more; log in again, and launch again"
        ) from error
    raise Refused(status, str(said or error).strip()) from error


def _unavailable(service: str, error: Exception, status: int | None = None) -> None:
    LOG.warning("%s: %s", service, error)
    what = "does not answer" if status is None else f"failed (HTTP {status})"
    raise exceptions.CloudUnavailable(reason=f"{service} {what}") from error
