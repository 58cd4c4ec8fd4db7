# SPDX-License-Identifier: Apache-2.0
"""What pages ask the cloud for: GSaaS through its SDK service, and the lists of Nova, Glance, Neutron and Keystone.

1. The token and the catalogue are Horizon's, so a page needs Keystone for nothing.
2. Every request has a timeout. The first one to GSaaS reads its version; if that fails, no other is sent, so that a
   page waits once at most.
3. Whatever fails is raised as an exception of Horizon with a sentence for the page. The SDK's own must not get to
   Horizon: it takes `HttpException`, the base of all of them, for a token that is not valid any more, and would log the
   user out because his request does not fit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import requests
from django.conf import settings
from django.http import HttpRequest
from horizon import exceptions
from keystoneauth1 import exceptions as keystone
from keystoneauth1.access import AccessInfoV3
from keystoneauth1.identity.access import AccessInfoPlugin
from keystoneauth1.session import Session
from openstack import exceptions as sdk_exceptions
from openstack.connection import Connection
from openstack.service_description import ServiceDescription
from openstack_dashboard.api import base

from gsaas_dashboard import versions
from gsaasclient import sdk
from gsaasclient.errors import ApiError

Answer = TypeVar("Answer")
LOG = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds for which a service may be silent, unless the setting `GSAAS_TIMEOUT` says otherwise."""
MOST = 1000
"""Rows that are asked for of each list for the launch page."""


class Refused(exceptions.BadRequest):
    """GSaaS has refused a request; *error* is all that it says, None if the answer is not its own."""

    def __init__(self, message: str, error: ApiError | None) -> None:
        super().__init__(message)
        self.error = error


class Missing(exceptions.NotAvailable):
    """What was asked for does not exist, or belongs to another project.

    Horizon's own `NotFound` would leave the page without a sentence.
    """


class Scheduling(sdk.Proxy):
    """GSaaS's service of the SDK, of a version that is known already."""

    skip_discovery = True


def scheduling(request: HttpRequest) -> Scheduling:
    """Return GSaaS as the user of *request*. Raises an exception of Horizon if it does not answer."""
    known: Scheduling | None = getattr(request, "_gsaas_scheduling", None)
    if known is not None:
        return known
    failure: exceptions.HorizonException | None = getattr(request, "_gsaas_failure", None)
    if failure is not None:
        raise failure
    try:
        with _translated("GSaaS"):
            made = _connect(request)
    except exceptions.HorizonException as error:
        request._gsaas_failure = error
        raise
    request._gsaas_scheduling = made
    return made


def ask(
    request: HttpRequest,
    what: object,
    call: Callable[[Scheduling], Answer],
    otherwise: Answer,
    redirect: str | None = None,
) -> Answer:
    """Return what *call* gets from GSaaS. If that fails, say so on the page and return *otherwise*, or redirect.

    *what* is the beginning of that sentence, such as "The leases cannot be listed".
    """
    try:
        return do(request, call)
    except exceptions.HorizonException as error:
        tell(request, what, error, redirect)
    return otherwise


def do(request: HttpRequest, call: Callable[[Scheduling], Answer]) -> Answer:
    """Return what *call* gets from GSaaS. Raises an exception of Horizon if that fails."""
    gpus = scheduling(request)
    with _translated("GSaaS"):
        return call(gpus)


def act(request: HttpRequest, what: object, call: Callable[[Scheduling], object]) -> None:
    """Have *call* change something, as an action of a table. If that fails, say so on the page.

    Raises `HandledException` then, which keeps Horizon from reporting the failure again.
    """
    try:
        do(request, call)
    except exceptions.HorizonException as error:
        tell(request, what, error)
        raise exceptions.HandledException([type(error), error, None]) from error


def tell(
    request: HttpRequest,
    what: object,
    error: exceptions.HorizonException,
    redirect: str | None = None,
) -> None:
    """Have the page say that *what* failed, and why. A token that is not valid leads to the login."""
    if isinstance(error, exceptions.NotAuthorized):
        raise error
    said = (
        type(error)(f"{what}: {error}")
        if not isinstance(error, Refused)
        else Refused(f"{what}: {error}", error.error)
    )
    try:
        raise said from error
    except exceptions.HorizonException:
        exceptions.handle(request, redirect=redirect, details="")


def readings(gpus: Scheduling, lease_id: str) -> dict[str, Any] | None:
    """Return the readings of a lease; None if the service has none of it, or is too old to know any."""
    try:
        answer = gpus.get(f"/leases/{lease_id}/readings", microversion="latest")
    except sdk_exceptions.NotFoundException:
        return None
    found = answer.json().get("readings")
    return found if isinstance(found, dict) else None


class Choices:
    """What a VM may be launched with: images, flavors, networks and key pairs, each as pairs of id and name."""

    PATHS = {
        "images": ("image", "v2", f"/images?status=active&limit={MOST}"),
        "flavors": ("compute", "", f"/flavors?limit={MOST}"),
        "networks": ("network", "v2.0", "/networks?fields=id&fields=name"),
        "keypairs": ("compute", "", "/os-keypairs"),
    }

    def __init__(self, request: HttpRequest) -> None:
        session = _session(request)
        with ThreadPoolExecutor(len(self.PATHS)) as pool:
            found = {name: pool.submit(self._list, request, session, name) for name in self.PATHS}
        self.failures: list[str] = []
        """A sentence for each list that could not be read."""
        lists = {}
        for name, future in found.items():
            try:
                lists[name] = future.result()
            except exceptions.HorizonException as error:
                lists[name] = []
                self.failures.append(f"The list of {name} cannot be read: {error}")
        self.images, self.flavors = lists["images"], lists["flavors"]
        self.networks, self.keypairs = lists["networks"], lists["keypairs"]

    def _list(self, request: HttpRequest, session: Session, name: str) -> list[tuple[str, str]]:
        service, version, path = self.PATHS[name]
        with _translated(f"The {service} service"):
            url = versions.within(base.url_for(request, service), version)
            rows = session.get(url + path, headers={"Accept": "application/json"}).json()[name]
            if name == "keypairs":
                rows = [row["keypair"] for row in rows]
            pairs = [(row.get("id", row["name"]), row["name"] or row["id"]) for row in rows]
        return sorted(
            ((row["name"], row["name"]) for row in rows) if name == "keypairs" else pairs,
            key=lambda p: p[1],
        )


def project_names(request: HttpRequest) -> dict[str, str]:
    """Return the names of projects by id; nothing if Keystone does not say."""
    try:
        with _translated("Keystone"):
            url = versions.within(base.url_for(request, "identity"), "v3")
            answer = _session(request).get(
                url + "/projects", headers={"Accept": "application/json"}
            )
            return {row["id"]: row["name"] for row in answer.json()["projects"]}
    except exceptions.HorizonException:
        return {}


def _connect(request: HttpRequest) -> Scheduling:
    session = _session(request)
    url = versions.within(base.url_for(request, sdk.SERVICE_TYPE), "v1")
    described = session.get(url, authenticated=False).json()["version"]
    connection = Connection(
        session=session,
        region_name=request.user.services_region,
        app_name="gsaas-dashboard",
        gpu_scheduling_endpoint_override=url,
        gpu_scheduling_default_microversion=versions.newest(described),
    )
    connection.add_service(
        ServiceDescription(sdk.SERVICE_TYPE, supported_versions={"1": Scheduling})
    )
    gpus: Scheduling = getattr(connection, sdk.SERVICE_TYPE.replace("-", "_"))
    return gpus


def _session(request: HttpRequest) -> Session:
    """Return a session with the token that Horizon has, which it neither renews nor validates."""
    user = request.user
    known = {"token": {"catalog": user.service_catalog, "user": {"id": user.id}}}
    return Session(
        auth=AccessInfoPlugin(AccessInfoV3(known, auth_token=user.token.id)),
        verify=False if settings.OPENSTACK_SSL_NO_VERIFY else settings.OPENSTACK_SSL_CACERT or True,
        timeout=getattr(settings, "GSAAS_TIMEOUT", TIMEOUT),
        app_name="gsaas-dashboard",
    )


@contextmanager
def _translated(service: str) -> Iterator[None]:
    """Raise an exception of Horizon, with a sentence, for whatever a request to *service* ends with."""
    try:
        yield
    except exceptions.HorizonException:
        raise
    except (sdk_exceptions.HttpException, keystone.HttpError) as error:
        raise _answered(service, error) from error
    except (keystone.ConnectTimeout, requests.Timeout) as error:
        raise exceptions.NotAvailable(f"{service} does not answer. Try again later.") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        LOG.warning("The answer of %s cannot be parsed", service, exc_info=True)
        raise exceptions.NotAvailable(
            f"another program answers in the place of {service}. Tell an administrator."
        ) from error
    except (
        keystone.ClientException,
        sdk_exceptions.SDKException,
        requests.RequestException,
    ) as error:
        raise exceptions.NotAvailable(f"{service} cannot be reached. Try again later.") from error


def _answered(service: str, error: Exception) -> exceptions.HorizonException:
    """Return the exception of Horizon for an error with an HTTP status."""
    status = getattr(error, "status_code", None) or getattr(error, "http_status", 0)
    said = sdk.api_error(error) if isinstance(error, sdk_exceptions.HttpException) else None
    message = str(said) if said and said.code else f"{service} answered with HTTP status {status}"
    if said and said.request_id and said.status >= 500:
        message = f"{message} (request {said.request_id})"
    if status == 401:
        return exceptions.NotAuthorized(message)
    if status == 404:
        return Missing(message)
    return Refused(message, said)
