# SPDX-License-Identifier: Apache-2.0
"""The implementation of `gsaas.cloud.base` for Nova.

1. A server is made with the caller's token, in the caller's project: quotas, keypairs and networks are the caller's.
   Every later request is made as the service user, so it works after the caller's token has expired.
2. The database knows a server by the id that Nova gave it. Until that id is stored, the server is found by the tag of
   its lease; only servers of the lease's project count, and of those the oldest.
3. A request to make a server is sent once. If it fails without a clear answer, the server may exist: GSaaS searches
   for it. It learns of a server that appears later from a notification or from `server_changes`, and deletes it, also
   if its lease has got another one from a second request: their user data are the same.
4. Where GSaaS chooses the host, `host` pins the server to it. Operators allow this to services with Nova's policy rule
   RULE; without it Nova refuses the request, and the refusal names the rule.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud import server_tags
from gsaas.cloud.base import Cloud, ListedServer, Owner, Server, ServerChange, ServerStatus
from gsaas.cloud.nova import checks, defaults, hosts, offers, requests, servers
from gsaas.cloud.nova.clients import (
    ClientFactory,
    Clients,
    RequestRejected,
    run_in_parallel,
    translated_errors,
)
from gsaas.context import RequestContext
from gsaas.objects.plain_server import PlainServer

LOG = logging.getLogger(__name__)

RULE = "compute:servers:create:requested_destination"
_PAGE = 100
"""Servers of one request. For its usual 1,000, Nova takes half a minute while it is busy: every request would time out,
and no change be noticed any more."""
_FIRST_PERIOD = datetime.timedelta(days=1)
"""The period for which an engine that has just started asks Nova for changes."""


class NovaCloud(Cloud):
    """Servers of Nova. An instance may be shared by threads, and may be made before a fork."""

    needs_caller = True
    notifies = True
    shelves = True

    @classmethod
    def configured(cls, conf: cfg.ConfigOpts) -> NovaCloud:
        return cls(conf)

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """Raise `ValueError` if [service_user] does not say which user the service is, or a default cannot be read."""
        self._client_factory = ClientFactory(conf)
        self._defaults = defaults.configured(conf.nova)
        self.poll_interval = conf.nova.poll_interval
        self.audit_interval = conf.nova.audit_interval

    def connect(self) -> None:
        with translated_errors("OpenStack"):
            self._client_factory.warm_up()

    def complete(
        self, context: RequestContext, request: dict[str, Any]
    ) -> tuple[dict[str, Any], list[str]]:
        lacking = requests.missing(request)
        if not lacking:
            return request, []
        caller = self._caller_clients(context)
        asking = offers.of(caller, context.project_id)
        try:
            found = run_in_parallel([asking[field] for field in lacking])
        except RequestRejected as rejected:
            raise exceptions.ServerRefused(reason=str(rejected)) from rejected
        offered = dict(zip(lacking, found, strict=True))
        # Asked only where it decides, as Neutron reads much for it.
        allocates = offered.get("networks") == [] and offers.allocates_network(
            caller, context.project_id
        )
        values, chosen, missing = defaults.complete(
            lacking, self._defaults, offered, allocates=allocates
        )
        if missing:
            raise exceptions.ServerIncomplete(
                reason=defaults.explain(missing),
                details={"missing": [each.to_dict() for each in missing]},
            )
        return requests.completed(request, values), [f"the cloud chose: {', '.join(chosen)}"]

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        fields = requests.fields(request)
        try:
            checks.check(self._caller_clients(context), context.project_id, fields)
        except RequestRejected as rejected:
            raise exceptions.ServerRefused(reason=str(rejected)) from rejected
        return []

    def compute_hosts(self) -> Sequence[str]:
        return hosts.compute_hosts(self._client_factory.for_service())

    def create(
        self,
        context: RequestContext,
        owner: Owner,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        # An untried lease cannot have a server yet, which saves a request to Nova.
        if not owner.untried and (found := self.find(owner)):
            return found
        caller = self._caller_clients(context)
        if host is None and avoid:
            host = self._choose_host(caller, request, avoid)
        body = requests.body(request, user_data, owner.lease_id, host)
        try:
            with translated_errors("Nova"):
                # The body is posted as it is, because novaclient's `create` would change some of its fields. The
                # request is not repeated: Nova may have made the server although no answer arrived.
                answer = caller.nova.client.post("/servers", body=body, connect_retries=0)[1]
        except RequestRejected as rejected:
            raise exceptions.ServerRefused(reason=_refusal_reason(rejected, host)) from rejected
        except exceptions.CloudUnavailable as error:
            if found := self._find_after_failure(owner):
                return found
            raise exceptions.CloudUnavailable(
                reason=f"{error} when GSaaS requested the server; launch again"
            ) from error
        return Server(answer["server"]["id"], ServerStatus.BUILD, None, None)

    def find(self, owner: Owner) -> Server | None:
        found = self._get(owner.server_id) if owner.server_id else self._find_by_tag(owner)
        server = _existing(found)
        if server is None:
            return None
        return servers.describe(server, self._ports(server["id"]))

    def delete(self, owner: Owner) -> None:
        server_id = owner.server_id
        if server_id is None:
            found = self._find_by_tag(owner)
            if found is None:
                return
            server_id = found["id"]
        try:
            with translated_errors("Nova"):
                self._client_factory.for_service().nova.servers.delete(server_id)
        except RequestRejected as rejected:
            _require_not_found(rejected)  # the server is gone already

    def delete_second(self, owner: Owner, server_id: str) -> bool:
        own = _existing(self._get(owner.server_id)) if owner.server_id else None
        second = _existing(self._get(server_id))
        if own is None or second is None or not servers.is_second(second, own, owner):
            return False
        self.delete(replace(owner, server_id=server_id))
        return True

    def shelve(self, owner: Owner) -> None:
        if owner.server_id is None:
            return
        try:
            with translated_errors("Nova"):
                self._client_factory.for_service().nova.servers.shelve(owner.server_id)
        except RequestRejected as rejected:
            # It is being shelved, is locked, or is in a state in which Nova shelves no server.
            if rejected.status == 409:
                raise exceptions.ServerRefused(reason=str(rejected)) from rejected
            _require_not_found(rejected)

    def plain_server(self, server_id: str) -> PlainServer | None:
        server = _existing(self._get(server_id))
        return None if server is None else servers.plain(server)

    def server_hosts(self) -> dict[str, str]:
        found = map(servers.placement, self._list({"all_tenants": True}))
        return {server_id: host for server_id, host in found if host is not None}

    def list_servers(self) -> Iterator[ListedServer]:
        for one in self._list({"all_tenants": True}):
            if one["status"] not in servers.GONE:
                yield servers.listed(one)

    def set_tag(self, server_id: str, lease_id: str) -> None:
        try:
            with translated_errors("Nova"):
                self._client_factory.for_service().nova.servers.add_tag(
                    server_id, server_tags.tag(lease_id)
                )
        except RequestRejected as rejected:
            raise exceptions.ServerRefused(reason=str(rejected)) from rejected

    def remove_tag(self, server_id: str, lease_id: str) -> None:
        try:
            with translated_errors("Nova"):
                self._client_factory.for_service().nova.servers.delete_tag(
                    server_id, server_tags.tag(lease_id)
                )
        except RequestRejected as rejected:
            if rejected.status != 404:
                raise exceptions.ServerRefused(reason=str(rejected)) from rejected

    def server_changes(self, since: datetime.datetime | None) -> list[ServerChange]:
        query: dict[str, Any] = {"all_tenants": True}
        if since is None:
            # `server_hosts` tells which ones are gone. A busy cloud deletes thousands in a day.
            query["deleted"] = "false"  # its client leaves False out
            since = timeutils.utcnow() - _FIRST_PERIOD
        query["changes-since"] = f"{since - servers.SKEW:%Y-%m-%dT%H:%M:%S}"
        return [servers.change(server) for server in self._list(query)]

    def _caller_clients(self, context: RequestContext) -> Clients:
        """Return clients with the token of *context*; raise `ServerRefused` if it has none."""
        if not context.auth_token:
            raise exceptions.ServerRefused(
                reason="a server is made with its owner's token, and the request has none; send it again with a token"
            )
        return self._client_factory.for_caller(context.auth_token, context.project_id)

    def _choose_host(self, caller: Clients, request: dict[str, Any], avoid: Sequence[str]) -> str:
        """Return a host other than *avoid* for the server; the flavor is read as the caller, who must be able to."""
        fields = requests.fields(request)
        try:
            with translated_errors("Nova"):
                flavor = caller.nova.flavors.get(fields["flavorRef"]).to_dict()
            return hosts.choose(self._client_factory.for_service(), flavor, fields, avoid)
        except RequestRejected as rejected:
            raise exceptions.ServerRefused(reason=str(rejected)) from rejected

    def _find_after_failure(self, owner: Owner) -> Server | None:
        """Return the server that a failed request may have made all the same; None also if Nova still fails."""
        try:
            return self.find(owner)
        except exceptions.CloudUnavailable as error:
            LOG.warning(
                "lease %s: cannot find out whether it has a server: %s", owner.lease_id, error
            )
            return None

    def _get(self, server_id: str) -> servers.Document | None:
        try:
            with translated_errors("Nova"):
                server: servers.Document = (
                    self._client_factory.for_service().nova.servers.get(server_id).to_dict()
                )
                return server
        except RequestRejected as rejected:
            _require_not_found(rejected)
            return None

    def _find_by_tag(self, owner: Owner) -> servers.Document | None:
        query = {
            "all_tenants": True,
            "project_id": owner.project_id,
            "tags": server_tags.tag(owner.lease_id),
        }
        return servers.oldest(list(self._list(query)), owner.since)

    def _list(self, query: dict[str, Any]) -> Iterator[servers.Document]:
        """Yield servers, read page by page: those of a large cloud do not fit into memory at once.

        Nova leaves out the servers of a cell that it cannot reach, and does not say so.
        """
        nova = self._client_factory.for_service().nova
        marker = None
        while True:
            try:
                with translated_errors("Nova"):
                    page = nova.servers.list(search_opts=query, limit=_PAGE, marker=marker)
            except RequestRejected as rejected:
                raise _misconfigured("Nova", rejected) from rejected
            if not page:
                return
            yield from (server.to_dict() for server in page)
            marker = page[-1].id

    def _ports(self, server_id: str) -> list[servers.Document]:
        try:
            with translated_errors("Neutron"):
                found = self._client_factory.for_service().sdk.network.ports(device_id=server_id)
                return [port.to_dict(original_names=True) for port in found]
        except RequestRejected as rejected:
            raise _misconfigured("Neutron", rejected) from rejected


def _existing(server: servers.Document | None) -> servers.Document | None:
    """Return *server*, None if it is deleted; raise `CloudUnavailable` if Nova knows no more than its id."""
    if server is None or server["status"] in servers.GONE:
        return None
    if server["status"] == servers.UNKNOWN:
        raise exceptions.CloudUnavailable(reason="Nova cannot reach the cell that has the server")
    return server


def _require_not_found(rejected: RequestRejected) -> None:
    """Raise `CloudUnavailable` unless Nova has answered that there is no such server."""
    if rejected.status != 404:
        raise _misconfigured("Nova", rejected) from rejected


def _misconfigured(service: str, rejected: RequestRejected) -> exceptions.CloudUnavailable:
    """Return the error for a request of the service user that *service* rejected, which only operators can repair."""
    LOG.error(
        "%s rejects requests of GSaaS: %s; does its service user have the role admin?",
        service,
        rejected,
    )
    return exceptions.CloudUnavailable(reason=f"{service} rejected a request of GSaaS")


def _refusal_reason(rejected: RequestRejected, host: str | None) -> str:
    """Return what to tell the tenant whose server Nova refused; *host* is the host that GSaaS had chosen."""
    said = str(rejected)
    if rejected.status == 403 and host is not None and "requested_destination" in said:
        return (
            "Nova does not let GSaaS choose the VM's host, which this locality needs: an operator has to "
            f"allow the rule {RULE} to the role service; until then, use -locality=any"
        )
    return f"Nova refused the server: {said}"
