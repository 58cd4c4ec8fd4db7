# SPDX-License-Identifier: Apache-2.0
"""`connection.gpu_scheduling`: one method for each operation of the API.

Lists are generators that read page by page. Errors are the SDK's exceptions, with the API's sentence as their message;
`gsaasclient.sdk.api_error` returns the rest of what the API says. A method that takes a lease, GPU, host,
reservation or policy takes it or its id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeVar, cast, overload

import requests
from openstack import exceptions, proxy, resource

from gsaasclient import naming
from gsaasclient.sdk import errors
from gsaasclient.sdk.checks import Check
from gsaasclient.sdk.gpus import Gpu, Model, Totals
from gsaasclient.sdk.hosts import Host
from gsaasclient.sdk.leases import ENDED, Lease
from gsaasclient.sdk.policies import Policy
from gsaasclient.sdk.queue import Place
from gsaasclient.sdk.reservations import Reservation
from gsaasclient.sdk.usage import Limits, Usage

Named = TypeVar("Named", Lease, Reservation)


class Proxy(proxy.Proxy):
    """The API of GSaaS, version 1."""

    api_version = "1"

    def request(self, url: str, method: str, *args: Any, **more: Any) -> requests.Response:
        """Send a request as every proxy of the SDK does. Raises the SDK's exception for an error status."""
        response = super().request(url, method, *args, **more)
        errors.check(response)
        return response

    def leases(self, **query: Any) -> Iterator[Lease]:
        """Yield leases: those of the project that are not RELEASED, unless *query* asks for others.

        *query* has the parameters of the API: `status`, `name`, `server_id`, `all_projects`, `changes_since`,
        `sort_key`, `sort_dir`, `limit` (of a page), `marker`.
        """
        return self._list(Lease, **_query(query))

    def get_lease(self, lease: str | Lease) -> Lease:
        """Return a lease with its events. Raises `NotFoundException`."""
        return self._get(Lease, lease)

    @overload
    def find_lease(
        self, name_or_id: str, ignore_missing: Literal[False], **query: Any
    ) -> Lease: ...

    @overload
    def find_lease(
        self, name_or_id: str, ignore_missing: bool = True, **query: Any
    ) -> Lease | None: ...

    def find_lease(
        self, name_or_id: str, ignore_missing: bool = True, **query: Any
    ) -> Lease | None:
        """Return the lease with this id, of the server with this id, or with this name, or the beginning of an id.

        If there is none, returns None, or raises `NotFoundException` unless *ignore_missing*. Raises
        `DuplicateResource` if several leases are meant. *query* is as for `leases`.
        """
        if naming.is_id(name_or_id):
            try:
                return self.get_lease(name_or_id)
            except exceptions.NotFoundException:
                pass
            for lease in self.leases(server_id=name_or_id, **query):
                return lease
        found = list(self.leases(name=name_or_id, **query))
        if not found and naming.may_begin_id(name_or_id):
            found = [
                lease
                for lease in self.leases(**query)
                if naming.begins_one_of(name_or_id, (lease.id, (lease.server or {}).get("id")))
            ]
        return _the_one(found, name_or_id, "lease", ignore_missing)

    def create_lease(self, **fields: Any) -> Lease:
        """Claim cGPUs, and return the lease; `wait_for_lease` waits until it can be used.

        *fields* are those of `POST /v1/leases`: `cgpus`, such as `{"count": 2, "mode": "shared", "memory_mb": 2048}`;
        `server`, Nova's fields of a server, None for a lease without a VM; `name`, `wait`, `priority`, `consumer`,
        `keepalive`, `reservation`. Raises `ConflictException` if the request does not fit.
        """
        return self._create(Lease, **fields)

    def update_lease(self, lease: str | Lease, **fields: Any) -> Lease:
        """Change the `name` of a lease, or its `priority` while it is in the queue; return it as it is then."""
        return self._update(Lease, lease, **fields)

    def delete_lease(self, lease: str | Lease, ignore_missing: bool = True) -> None:
        """End a lease, or give up its place in the queue. `wait_for_release` waits until its GPUs are free again.

        One that has ended already is missing.
        """
        self._delete(Lease, lease, ignore_missing=ignore_missing)

    def get_lease_environment(self, lease: str | Lease) -> dict[str, str]:
        """Return the environment variables with which programs find the cGPUs."""
        response = self._on(lease, "GET", "environment")
        return cast("dict[str, str]", response.json()["environment"])

    def get_lease_readings(self, lease: str | Lease) -> dict[str, Any]:
        """Return what the cGPUs of a lease did in the last day: its `idle_since` and `series`.

        Needs microversion 1.5 of the API.
        """
        response = self._on(lease, "GET", "readings")
        return cast("dict[str, Any]", response.json()["readings"])

    def keep_lease(self, lease: str | Lease) -> str | None:
        """Keep a lease alive that was made with `keepalive`; return the time until which it is kept."""
        response = self._on(lease, "POST", "keepalive")
        return cast("str | None", response.json()["lease"]["kept_until"])

    def move_lease(self, lease: str | Lease, **fields: Any) -> dict[str, Any]:
        """Move cGPUs of a lease to other GPUs; return its `kind`, `stage`, `connections` and `cgpus`.

        *fields*: `index` of one cGPU; `gpu` or `host` that it goes to; `force` to cut open connections; `dry_run` to do
        nothing. Raises `ConflictException` if it cannot be moved. Needs microversion 1.11 of the API.
        """
        response = self._on(lease, "POST", "move", json={"move": fields})
        return cast("dict[str, Any]", response.json()["move"])

    def wait_for_lease(self, lease: Lease, wait: float | None = None, interval: float = 1) -> Lease:
        """Wait until a lease is ACTIVE, for at most *wait* seconds, and return all that is known of it.

        Raises `ResourceFailure` if it will not become ACTIVE, with its fault, and `ResourceTimeout`.
        """
        lease = self.get_lease(lease.id)  # the answer to its request lacks its events
        if lease.status in ENDED:
            raise exceptions.ResourceFailure(_failure(lease))
        try:
            return resource.wait_for_status(
                self, lease, "ACTIVE", failures=[*ENDED], interval=interval, wait=wait
            )
        except exceptions.ResourceTimeout:
            raise
        except exceptions.ResourceFailure:
            raise exceptions.ResourceFailure(_failure(self.get_lease(lease.id))) from None

    def wait_for_release(
        self, lease: Lease, wait: float | None = None, interval: float = 1
    ) -> Lease:
        """Wait until a lease is RELEASED, for at most *wait* seconds, and return it. Raises `ResourceTimeout`."""
        return resource.wait_for_status(
            self, lease, "RELEASED", failures=[], interval=interval, wait=wait
        )

    def gpus(self, **query: Any) -> Iterator[Gpu]:
        """Yield the GPUs; none for callers who may see only the totals. *query*: `sort_key`, `sort_dir`, `limit`."""
        return self._list(Gpu, **query)

    def get_gpu(self, gpu: str | Gpu) -> Gpu:
        """Return a GPU by its UUID. Raises `NotFoundException`."""
        return self._get(Gpu, gpu)

    def disable_gpu(self, gpu: str | Gpu, reason: str | None = None) -> Gpu:
        """Give a GPU to no more leases; those that have it keep it."""
        return self._get_resource(Gpu, gpu).set_disabled(self, True, reason)

    def enable_gpu(self, gpu: str | Gpu) -> Gpu:
        """Give a GPU to leases again."""
        return self._get_resource(Gpu, gpu).set_disabled(self, False)

    def adopt_gpu(self, gpu: str | Gpu, host: str) -> Gpu:
        """Consent to the move of a GPU to another *host*, which reports it."""
        return self._get_resource(Gpu, gpu).adopt(self, host)

    def models(self) -> Iterator[Model]:
        """Yield the models of GPUs that new leases may get, each with how much of it is free.

        Needs microversion 1.11 of the API.
        """
        return self._list(Model)

    def get_totals(self) -> Totals:
        """Return how many GPUs the cloud has, and how much of their memory is free."""
        return self._get(Totals, requires_id=False)

    def hosts(self, **query: Any) -> Iterator[Host]:
        """Yield the hosts; none for callers who may see only the totals. *query* is as for `gpus`."""
        return self._list(Host, **query)

    def get_host(self, host: str | Host) -> Host:
        """Return a host by its name. Raises `NotFoundException`."""
        return self._get(Host, host)

    def disable_host(self, host: str | Host, reason: str | None = None) -> Host:
        """Give no GPU of a host to more leases; those that have one keep it."""
        return self._get_resource(Host, host).set_disabled(self, True, reason)

    def drain_host(
        self,
        host: str | Host,
        reason: str | None = None,
        *,
        by: str | None = None,
        force: bool = False,
    ) -> Host:
        """Disable a host, and have its leases move to other hosts as soon as they have no open connections.

        *by* is a time from which on connections are cut; with *force*, they are cut at once. `enable_host` ends it.
        Needs microversion 1.11 of the API. Raises `ConflictException` for a host without GPUs.
        """
        drain: dict[str, Any] = {"force": True} if force else {"by": by}
        return self._get_resource(Host, host).set_disabled(self, True, reason, drain=drain)

    def enable_host(self, host: str | Host) -> Host:
        """Give the GPUs of a host to leases again."""
        return self._get_resource(Host, host).set_disabled(self, False)

    def forget_host(self, host: str | Host, force: bool = False) -> dict[str, Any]:
        """Declare a host permanently gone; return its `name`, `failed_leases` and `unbound_leases`.

        Raises `ConflictException` if its agents have reported recently, unless *force*.
        """
        response = self.delete(
            self._get_resource(Host, host).path,
            params={"force": "true"} if force else {},
            microversion=Host._get_microversion(self),
        )
        return cast("dict[str, Any]", response.json()["forgotten"])

    def queue(self, **query: Any) -> Iterator[Place]:
        """Yield the project's requests in the queue, for administrators all of them, in the order of their turns."""
        return self._list(Place, **query)

    def reservations(self, **query: Any) -> Iterator[Reservation]:
        """Yield the project's reservations that are not over, the earliest first.

        *query*: `status`, `all_projects`, `sort_key`, `sort_dir`, `limit` (of a page), `marker`.
        """
        return self._list(Reservation, **_query(query))

    def get_reservation(self, reservation: str | Reservation) -> Reservation:
        """Return a reservation by its id. Raises `NotFoundException`."""
        return self._get(Reservation, reservation)

    @overload
    def find_reservation(self, name_or_id: str, ignore_missing: Literal[False]) -> Reservation: ...

    @overload
    def find_reservation(
        self, name_or_id: str, ignore_missing: bool = True
    ) -> Reservation | None: ...

    def find_reservation(self, name_or_id: str, ignore_missing: bool = True) -> Reservation | None:
        """Return the reservation with this id, or that is not over and has this name, or an id that begins so.

        If there is none, returns None, or raises `NotFoundException` unless *ignore_missing*. Raises
        `DuplicateResource` if several reservations are meant.
        """
        if naming.is_id(name_or_id):
            try:
                return self.get_reservation(name_or_id)
            except exceptions.NotFoundException:
                if not ignore_missing:
                    raise
                return None
        all_ = list(self.reservations())
        found = [one for one in all_ if one.name == name_or_id]
        if not found and naming.may_begin_id(name_or_id):
            found = [one for one in all_ if naming.begins_one_of(name_or_id, (one.id,))]
        return _the_one(found, name_or_id, "reservation", ignore_missing)

    def create_reservation(self, **fields: Any) -> Reservation:
        """Reserve cGPUs for a time to come, and return the reservation.

        *fields* are those of `POST /v1/reservations`: `cgpus`, `end`, and if wanted `start` and `name`. A lease is
        launched in it by `create_lease` with its id as `reservation`. Raises `ConflictException` if it does not fit.
        """
        return self._create(Reservation, **fields)

    def update_reservation(self, reservation: str | Reservation, **fields: Any) -> Reservation:
        """Change the `name` of a reservation; return it as it is then."""
        return self._update(Reservation, reservation, **fields)

    def delete_reservation(
        self, reservation: str | Reservation, ignore_missing: bool = True
    ) -> None:
        """Cancel a reservation; the leases that were launched in it go on."""
        self._delete(Reservation, reservation, ignore_missing=ignore_missing)

    def policies(self) -> Iterator[Policy]:
        """Yield the scheduling policies."""
        return self._list(Policy)

    def get_policy(self, policy: str | Policy) -> Policy:
        """Return a policy with its advantages and disadvantages. Raises `NotFoundException`."""
        return self._get(Policy, policy)

    def set_default_policy(self, policy: str | Policy | None) -> Policy:
        """Set the policy of requests that name none, None for that of the configuration; return it."""
        name = None if policy is None else resource.Resource._get_id(policy)
        response = self.patch(
            Policy.base_path,
            json={"policies": {"default": name}},
            microversion=Policy._get_microversion(self),
        )
        return Policy.existing(connection=self._get_connection(), **response.json()["policy"])

    def create_check(self, **fields: Any) -> Check:
        """Return whether a request for cGPUs would fit now, and if not, why, and what would.

        *fields* are those of `cgpus` in a launch; `consumer` makes it a check of a lease without a VM,
        `reservation` one of a lease in this reservation.
        """
        return self._create(Check, **fields)

    def get_usage(self, start: str | None = None, end: str | None = None) -> Usage:
        """Return what projects used from *start* until *end*: times or dates, UTC; by default in this month."""
        period = {name: time for name, time in (("start", start), ("end", end)) if time}
        usage = Usage.new(connection=self._get_connection())
        return usage.fetch(self, requires_id=False, **period)

    def get_limits(self) -> Limits:
        """Return the limits of the project, and how much of each is used."""
        return self._get(Limits, requires_id=False)

    def _on(self, lease: str | Lease, method: str, action: str, **more: Any) -> requests.Response:
        """Send a request for an *action* of a lease; *more* is as for `request`."""
        return self.request(
            f"{self._get_resource(Lease, lease).path}/{action}",
            method,
            microversion=Lease._get_microversion(self),
            **more,
        )


def _the_one(found: list[Named], called: str, noun: str, ignore_missing: bool) -> Named | None:
    """Return the only one of *found*, which are all that *called* may mean; None if there is none.

    Raises `NotFoundException` instead unless *ignore_missing*, and `DuplicateResource` if there are several.
    """
    if len(found) > 1:
        names, ids = [one.name for one in found], [one.id for one in found]
        raise exceptions.DuplicateResource(naming.ambiguous(called, f"{noun}s", names, ids))
    if not found and not ignore_missing:
        raise exceptions.NotFoundException(
            f"there is no {noun} of this project with the name or id {called}"
        )
    return found[0] if found else None


def _query(query: dict[str, Any]) -> dict[str, Any]:
    """Return a query with truth values as the API spells them, and without what is None."""
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }


def _failure(lease: Lease) -> str:
    """Return a sentence on a lease that will not become ACTIVE."""
    if lease.fault:
        step = f" at {lease.fault['step']}" if lease.fault.get("step") else ""
        return f"lease {lease.id} is {lease.status}; it failed{step}: {lease.fault['message']}"
    return f"lease {lease.id} does not become ACTIVE: it is {lease.status}"
