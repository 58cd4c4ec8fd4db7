# SPDX-License-Identifier: Apache-2.0
"""Who is told that a lease has left the queue: everybody who might be waiting for it."""

from __future__ import annotations

from gsaas import rpc
from gsaas.context import RequestContext
from gsaas.engine.agents import Agents
from gsaas.engine.callers import Callers
from gsaas.engine.rpc_endpoint import RpcEndpoint
from gsaas.metrics import counted
from gsaas.objects import timings
from gsaas.objects.lifecycle import Status
from gsaas.rpc.announce import Announcer
from gsaas.rpc.api import ApiClient, ApiListener
from gsaas.rpc.engine import EngineClient
from tests.support.waiting import until

LEASE = "6f1d0d3e-8b5a-4f0e-9d0c-2f4c1b7f4a11"


class Heard(list):
    """What was heard, and by whom."""

    def by(self, name: str):
        return lambda lease_id: bool(self.append((name, lease_id)))


def inbox_of(database, wake, callers) -> RpcEndpoint:
    """An engine's inbox; nothing comes in here that it would have to pass on."""
    return RpcEndpoint(database, Agents(None, None), wake, callers)


def test_every_api_worker_and_every_engine_hears_of_it(bus, database, running):
    heard = Heard()
    for worker in ("worker-1", "worker-2"):
        running(rpc.server(bus, rpc.API, worker, ApiListener(bus, heard.by(worker))))
    for engine in ("engine-1", "engine-2"):
        inbox = inbox_of(database, heard.by(engine), Callers())
        running(rpc.server(bus, rpc.ENGINE, engine, inbox))

    Announcer(EngineClient(bus), ApiClient(bus))(LEASE, Status.CLAIMED, "first-fit")

    everybody = {"worker-1", "worker-2", "engine-1", "engine-2"}
    until(lambda: {name for name, _ in heard} == everybody, "all to hear")
    assert sorted(heard) == sorted((name, LEASE) for name in everybody)


def test_nobody_else_is_told_what_a_client_here_waited_for(bus, database, running):
    heard = Heard()
    running(rpc.server(bus, rpc.API, "worker-1", ApiListener(bus, heard.by("worker-1"))))
    inbox = inbox_of(database, heard.by("engine-1"), Callers())
    running(rpc.server(bus, rpc.ENGINE, "engine-1", inbox))
    announce = Announcer(
        EngineClient(bus), ApiClient(bus), notify=lambda lease_id: lease_id == "known here"
    )

    announce("known here", Status.ACTIVE, "first-fit")
    announce("known elsewhere", Status.ACTIVE, "first-fit")

    until(lambda: heard, "somebody to hear")
    assert heard == [("worker-1", "known elsewhere")]


def test_a_wait_that_ends_with_usable_gpus_is_counted_and_timed(bus):
    def waits() -> float:
        return (
            counted.REGISTRY.get_sample_value(
                "gsaas_launch_phase_seconds_sum", {"phase": timings.QUEUE}
            )
            or 0.0
        )

    before = waits()
    announce = counted.counting_launches(Announcer(EngineClient(bus), notify=lambda _: True))
    announce(LEASE, Status.ACTIVE, "first-fit", {timings.QUEUE: 1.5})
    # The engine counts those that it has yet to bring to life.
    announce("lease-2", Status.CLAIMED, "first-fit", {timings.QUEUE: 1.5})
    assert waits() == before + 1.5


def test_an_api_worker_listens_only_once_somebody_waits(bus):
    heard = Heard()
    listener = ApiListener(bus, heard.by("worker"))
    listener.start()
    listener.start()

    def told() -> bool:
        ApiClient(bus).leases_changed([LEASE])
        return bool(heard)

    until(told, "the listener to hear")


def test_a_bus_that_is_down_keeps_nobody_from_what_he_does(monkeypatch, bus):
    def down(*_, **__):
        raise rpc.BusError("it is down")

    monkeypatch.setattr(rpc.RpcClient, "cast", down)

    Announcer(EngineClient(bus), ApiClient(bus))(LEASE, Status.CLAIMED, "first-fit")


def test_the_engine_that_knows_the_caller_looks_at_the_lease(bus, database, running):
    woken, callers = [], Callers()
    inbox = inbox_of(database, woken.append, callers)
    running(rpc.server(bus, rpc.ENGINE, "engine-1", inbox))
    engine = EngineClient(bus)
    context = RequestContext(user_id="u", project_id="p", roles=["member"], auth_token="secret")

    engine.lease_changed(context, LEASE)
    engine.lease_left_queue(LEASE)

    until(lambda: woken == [LEASE, LEASE], "both")
    assert callers.get(LEASE, "u", "p").auth_token == "secret"
