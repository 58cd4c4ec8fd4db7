"""Does Keystone know us, as what we need to be, and does the cloud know where we are?"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from keystoneauth1 import exceptions as keystone
from keystoneauth1 import loading
from keystoneauth1.session import Session
from oslo_config import cfg

from gsaas.checkup.findings import Finding, fail, ok, reason, warn

PART = "Keystone"
CATALOGUE = "catalogue"
API = "API"
SERVICE_TYPE = "gpu-scheduling"
TIMEOUT = 10
"""Seconds."""


def look(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Ask for a token in each of our names, and with it where we are."""
    section = "keystone_authtoken"
    session = _session(conf, section)
    if session is None:
        yield fail(PART, f"[{section}] has no auth_type", f"say in [{section}] how to ask Keystone")
        return
    try:
        roles = session.auth.get_access(session).role_names
    except keystone.ClientException as error:
        yield refused(section, error)
        return
    yield ok(PART, f"it knows the user of [{section}]; roles: {', '.join(sorted(roles)) or 'none'}")
    yield from _catalogue(session)


def service_user(roles: Collection[str]) -> Iterator[Finding]:
    """Whether the roles of [service_user] are those that Nova needs to see."""
    if missing := [role for role in ("admin", "service") if role not in roles]:
        yield fail(
            PART,
            f"the user of [service_user] lacks the role {' and '.join(missing)} in its project",
            "openstack role add --project service --user gsaas "
            + "; and the same with ".join(missing),
        )
    else:
        yield ok(PART, "the user of [service_user] has the roles admin and service")


def refused(section: str, error: Exception) -> Finding:
    return fail(
        PART,
        f"no token for the user of [{section}]: {reason(error)}",
        f"correct [{section}], or mend Keystone",
    )


def roles_of(session: Session) -> Collection[str]:
    """Raises `keystoneauth1.exceptions.ClientException`."""
    return session.auth.get_access(session).role_names


def _session(conf: cfg.ConfigOpts, section: str) -> Session | None:
    loading.register_auth_conf_options(conf, section)
    loading.register_session_conf_options(conf, section)
    conf.set_default("timeout", TIMEOUT, section)
    auth = loading.load_auth_from_conf_options(conf, section)
    return auth and loading.load_session_from_conf_options(conf, section, auth=auth)


def _catalogue(session: Session) -> Iterator[Finding]:
    try:
        url = session.get_endpoint(service_type=SERVICE_TYPE, interface="public")
    except keystone.CatalogException:
        url = None
    if url is None:
        yield fail(
            CATALOGUE,
            f"it has no public endpoint of a service of type {SERVICE_TYPE}: no client finds us",
            f"openstack service create --name gsaas {SERVICE_TYPE}; "
            f"openstack endpoint create --region REGION {SERVICE_TYPE} public URL",
        )
        return
    yield ok(CATALOGUE, f"clients find us at {url}")
    try:
        answer = session.get(f"{url.rstrip('/')}/healthcheck", authenticated=False, raise_exc=False)
    except keystone.ClientException as error:
        yield warn(
            API,
            f"it does not answer there: {reason(error)}",
            "systemctl status gsaas-api, and its proxy",
        )
        return
    if answer.status_code == 200:
        yield ok(API, "it answers there, and says that it is well")
    else:
        yield warn(
            API,
            f"{url}/healthcheck answers with HTTP status {answer.status_code}",
            "look at what gsaas-api logs, and its proxy",
        )
