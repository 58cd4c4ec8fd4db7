# SPDX-License-Identifier: Apache-2.0
"""Check GSaaS's users and their roles in Keystone, and its endpoint in the catalogue."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import cast

from keystoneauth1 import exceptions as keystone
from keystoneauth1 import loading
from keystoneauth1.identity.base import BaseIdentityPlugin
from keystoneauth1.session import Session
from oslo_config import cfg

from gsaas.checkup.findings import Finding, fail, ok, reason, warn

PART = "Keystone"
CATALOGUE = "catalogue"
API = "API"
SERVICE_TYPE = "gpu-scheduling"
TIMEOUT = 10
"""Seconds that Keystone, and the API, may take to answer."""


def check(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Request a token as the user of [keystone_authtoken], and with it look up the endpoint of GSaaS."""
    section = "keystone_authtoken"
    session = session_of(conf, section)
    if session is None:
        yield fail(
            PART,
            f"[{section}] has no auth_type",
            f"set in [{section}] how to authenticate with Keystone",
        )
        return
    try:
        roles = roles_of(session)
    except keystone.ClientException as error:
        yield no_token(section, error)
        return
    yield ok(PART, f"it knows the user of [{section}]; roles: {', '.join(sorted(roles)) or 'none'}")
    yield from _check_endpoint(session)


def check_service_user_roles(roles: Collection[str]) -> Iterator[Finding]:
    """Check that *roles*, those of the user of [service_user], include the two that Nova requires."""
    if missing := [role for role in ("admin", "service") if role not in roles]:
        yield fail(
            PART,
            f"the user of [service_user] lacks the role {' and '.join(missing)} in its project",
            "openstack role add --project service --user gsaas "
            + "; and the same with ".join(missing),
        )
    else:
        yield ok(PART, "the user of [service_user] has the roles admin and service")


def no_token(section: str, error: Exception) -> Finding:
    """Return the finding that Keystone issues no token for the user of *section*."""
    return fail(
        PART,
        f"no token for the user of [{section}]: {reason(error)}",
        f"correct [{section}], or repair Keystone",
    )


def roles_of(session: Session) -> Collection[str]:
    """Return the roles of the user that *session* authenticates; raises `keystoneauth1.exceptions.ClientException`."""
    # The plugins that configurations can name are identity plugins, which have `get_access`; their base class has not.
    access = cast(BaseIdentityPlugin, session.auth).get_access(session)
    return access.role_names or []


def session_of(conf: cfg.ConfigOpts, section: str) -> Session | None:
    """Return a session for the user of *section*; None if the section has no auth_type."""
    loading.register_auth_conf_options(conf, section)
    loading.register_session_conf_options(conf, section)
    conf.set_default("timeout", TIMEOUT, section)
    auth = loading.load_auth_from_conf_options(conf, section)
    if auth is None:
        return None
    return loading.load_session_from_conf_options(conf, section, auth=auth)


def _check_endpoint(session: Session) -> Iterator[Finding]:
    """Look up GSaaS's public endpoint in the catalogue, and request its health check."""
    try:
        url = session.get_endpoint(service_type=SERVICE_TYPE, interface="public")
    except keystone.CatalogException:
        url = None
    if url is None:
        yield fail(
            CATALOGUE,
            f"it has no public endpoint of a service of type {SERVICE_TYPE}, so no client finds the API",
            f"openstack service create --name gsaas {SERVICE_TYPE}; "
            f"openstack endpoint create --region REGION {SERVICE_TYPE} public URL",
        )
        return
    yield ok(CATALOGUE, f"clients find the API at {url}")
    try:
        answer = session.get(f"{url.rstrip('/')}/healthcheck", authenticated=False, raise_exc=False)
    except keystone.ClientException as error:
        yield warn(
            API,
            f"it does not answer at that address: {reason(error)}",
            "check gsaas-api (systemctl status gsaas-api) and its proxy",
        )
        return
    if answer.status_code == 200:
        yield ok(API, "it answers at that address, and reports that it is healthy")
    else:
        yield warn(
            API,
            f"{url}/healthcheck answers with HTTP status {answer.status_code}",
            "read the log of gsaas-api, and check its proxy",
        )
