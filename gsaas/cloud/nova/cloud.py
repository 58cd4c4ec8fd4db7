"""The contract of `gsaas.cloud.base`, kept with Nova.

1. A server is made with the caller's token, in the caller's project: quotas, keypairs and networks are the caller's.
   Everything after that is done in the service's own name, so it works when the caller's token has ended.
2. A server is known by the id that Nova gave it. Between its creation and the moment when that id is in the database,
   it can be found by its lease's tag; then only a server of the lease's project counts, and of those the oldest.
3. A request to make a server is sent once. If it was not answered clearly, the server may exist: it is looked for, and
   one that turns up later is heard of through a notification or `changed`, and deleted.
4. Where Nova is not to choose the host, `host` pins the server. Operators allow that to services with Nova's rule
   RULE; without it Nova refuses, and the refusal names the rule.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Sequence
from typing import Any

from oslo_config import cfg
from oslo_utils import timeutils

from gsaas import exceptions
from gsaas.cloud import marks
from gsaas.cloud.base import Cloud, Owner, Server, ServerStatus, Trace
from gsaas.cloud.nova import checks, hosts, requests, servers
from gsaas.cloud.nova.clients import ClientFactory, Clients, Refused, asking
from gsaas.context import RequestContext

LOG = logging.getLogger(__name__)

RULE = "compute:servers:create:requested_destination"
_AS_LONG_AGO = datetime.timedelta(days=1)
"""How far back an engine that has just started asks what happened."""


class NovaCloud(Cloud):
    """Servers of Nova. Safe to share between threads, and to make before a fork."""

    needs_caller = True
    notifies = True

    @classmethod
    def configured(cls, conf: cfg.ConfigOpts) -> NovaCloud:
        return cls(conf)

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        """`ValueError` if the configuration does not say as whom Nova is asked."""
        self._client_factory = ClientFactory(conf)
        self.poll_interval = conf.nova.poll_interval
        self.audit_interval = conf.nova.audit_interval

    def connect(self) -> None:
        with asking("OpenStack"):
            self._client_factory.open()

    def check(self, context: RequestContext, request: dict[str, Any]) -> list[str]:
        fields = requests.fields(request)
        try:
            checks.check(self._caller(context), context.project_id, fields)
        except Refused as refused:
            raise exceptions.ServerRefused(reason=str(refused)) from refused
        return []

    def compute_hosts(self) -> Sequence[str]:
        return hosts.compute_hosts(self._client_factory.service())

    def create(
        self,
        context: RequestContext,
        owner: Owner,
        request: dict[str, Any],
        user_data: str,
        host: str | None,
        avoid: Sequence[str],
    ) -> Server:
        if not owner.untried and (found := self.find(owner)):
            return found
        caller = self._caller(context)
        if host is None and avoid:
            host = self._elsewhere(caller, request, avoid)
        body = requests.body(request, user_data, owner.lease_id, host)
        try:
            with asking("Nova"):
                # Nova's own body as it is: novaclient's `create` would change some of its fields. Not sent twice:
                # what was not answered may have been done.
                answer = caller.nova.client.post("/servers", body=body, connect_retries=0)[1]
        except Refused as refused:
            raise exceptions.ServerRefused(reason=_why(refused, host)) from refused
        except exceptions.CloudUnavailable as error:
            if found := self._look_again(owner):
                return found
            raise exceptions.CloudUnavailable(
                reason=f"{error} when it was asked for the server; launch again"
            ) from error
        return Server(answer["server"]["id"], ServerStatus.BUILD, None, None)

    def find(self, owner: Owner) -> Server | None:
        server = self._get(owner.server_id) if owner.server_id else self._search(owner)
        if server is None or server["status"] in servers.GONE:
            return None
        if server["status"] == servers.UNKNOWN:
            raise exceptions.CloudUnavailable(reason="Nova cannot reach the cell of the server")
        return servers.describe(server, self._ports(server["id"]))

    def delete(self, owner: Owner) -> None:
        server_id = owner.server_id
        if server_id is None:
            found = self._search(owner)
            if found is None:
                return
            server_id = found["id"]
        try:
            with asking("Nova"):
                self._client_factory.service().nova.servers.delete(server_id)
        except Refused as refused:
            _nothing(refused)

    def placed(self) -> dict[str, str]:
        found = map(servers.placement, self._list({"all_tenants": True}))
        return {server_id: host for server_id, host in found if host is not None}

    def changed(self, since: datetime.datetime | None) -> list[Trace]:
        if since is None:
            since = timeutils.utcnow() - _AS_LONG_AGO
        query = {"all_tenants": True, "changes-since": f"{since - servers.SKEW:%Y-%m-%dT%H:%M:%S}"}
        return [
            Trace(server["id"], marks.lease_of(server.get("tags", ())))
            for server in self._list(query)
        ]

    def _caller(self, context: RequestContext) -> Clients:
        if not context.auth_token:
            raise exceptions.ServerRefused(
                reason="a server is made with its owner's token, and none came with the request"
            )
        return self._client_factory.caller(context)

    def _elsewhere(self, caller: Clients, request: dict[str, Any], avoid: Sequence[str]) -> str:
        fields = requests.fields(request)
        try:
            with asking("Nova"):
                flavor = caller.nova.flavors.get(fields["flavorRef"]).to_dict()
            return hosts.choose(self._client_factory.service(), flavor, fields, avoid)
        except Refused as refused:
            raise exceptions.ServerRefused(reason=str(refused)) from refused

    def _look_again(self, owner: Owner) -> Server | None:
        try:
            return self.find(owner)
        except exceptions.CloudUnavailable as error:
            LOG.warning("lease %s: whether it has a server is not known: %s", owner.lease_id, error)
            return None

    def _get(self, server_id: str) -> servers.Said | None:
        try:
            with asking("Nova"):
                return self._client_factory.service().nova.servers.get(server_id).to_dict()
        except Refused as refused:
            return _nothing(refused)

    def _search(self, owner: Owner) -> servers.Said | None:
        query = {
            "all_tenants": True,
            "project_id": owner.project_id,
            "tags": marks.tag(owner.lease_id),
        }
        return servers.oldest(self._list(query), owner.since)

    def _list(self, query: dict[str, Any]) -> list[servers.Said]:
        try:
            with asking("Nova"):
                found = self._client_factory.service().nova.servers.list(
                    search_opts=query, limit=-1
                )
                return [server.to_dict() for server in found]
        except Refused as refused:
            raise _misconfigured("Nova", refused) from refused

    def _ports(self, server_id: str) -> list[servers.Said]:
        try:
            with asking("Neutron"):
                found = self._client_factory.service().sdk.network.ports(device_id=server_id)
                return [port.to_dict(original_names=True) for port in found]
        except Refused as refused:
            raise _misconfigured("Neutron", refused) from refused


def _nothing(refused: Refused) -> None:
    """Return if Nova says no more than that there is no such server."""
    if refused.status != 404:
        raise _misconfigured("Nova", refused) from refused


def _misconfigured(service: str, refused: Refused) -> exceptions.CloudUnavailable:
    """The service itself was refused: an operator's business, which may be mended any time."""
    LOG.error("%s refuses GSaaS: %s; does its service user have the role admin?", service, refused)
    return exceptions.CloudUnavailable(reason=f"{service} refused what GSaaS asked of it")


def _why(refused: Refused, host: str | None) -> str:
    said = str(refused)
    if refused.status == 403 and host is not None and "requested_destination" in said:
        return (
            "Nova does not let GSaaS choose the VM's host, which this locality needs: an operator has to "
            f"allow the rule {RULE} to the role service; until then, use locality any"
        )
    return f"Nova refused the server: {said}"
