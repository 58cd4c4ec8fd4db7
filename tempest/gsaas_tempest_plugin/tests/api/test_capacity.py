# SPDX-License-Identifier: Apache-2.0
"""Requests that do not fit: why they are refused, and how they wait."""

from __future__ import annotations

import contextlib
from typing import Any

from tempest import config
from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.services import waiters
from gsaas_tempest_plugin.tests import base

CONF = config.CONF


def left_out(error: Any) -> dict[str, int]:
    """Return how many GPUs each filter left out of those that are of the kind of the request."""
    filters = {row["filter"]: row["gpus"] for row in error["gsaas"]["filters"]}
    filters.pop("kind", None)
    return filters


class NothingFitsTest(base.BaseGpuSchedulingTest):
    """Requests that no GPU of the cloud can ever serve."""

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("7cfb09c1-ac26-4c5d-afcc-3b2ad446c78d")
    def test_a_model_that_nobody_has_leaves_out_every_gpu(self) -> None:
        error = self.refusal(
            exceptions.Conflict,
            "gsaas.capacity.impossible",
            self.client.create_lease,
            cgpus=self.share(gpu_model="no GPU is called so"),
            server=None,
        )
        self.assertEqual({"model"}, set(left_out(error)))
        everything = self.client.list_gpus()["totals"]["gpus"]
        self.assertEqual(everything, sum(row["gpus"] for row in error["gsaas"]["filters"]))
        self.assertEqual("gpu_model", error["gsaas"]["relaxed"])
        self.assertEqual(1, error["gsaas"]["nearest"]["count"])

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("1d7171e9-5b25-4151-90a3-c1965c569215")
    def test_a_share_larger_than_any_gpu_leaves_out_every_gpu(self) -> None:
        totals = self.client.list_gpus()["totals"]
        request = self.share(memory_mb=totals["memory_mb"] + 1)
        error = self.refusal(
            exceptions.Conflict,
            "gsaas.capacity.impossible",
            self.client.create_lease,
            cgpus=request,
            server=None,
            wait=60,  # it would wait for ever
        )
        filters = {row["filter"]: row["gpus"] for row in error["gsaas"]["filters"]}
        self.assertIn("memory", filters)
        self.assertEqual(totals["gpus"], sum(filters.values()))

    @decorators.idempotent_id("d1ef5898-dbfb-4357-a767-d4bb3ad7b2ef")
    def test_a_check_says_the_same_and_claims_nothing(self) -> None:
        before = self.client.show_limits()["limits"]
        refused = self.client.create_check(**self.share(gpu_model="no GPU is called so"))["check"]
        self.assertEqual((False, "gsaas.capacity.impossible"), (refused["fits"], refused["code"]))
        fits = self.client.create_check(**self.share(2))["check"]
        self.assertTrue(fits["fits"], fits["reason"])
        self.assertEqual(2, len(fits["devices"]))
        self.assertEqual(before, self.client.show_limits()["limits"])


@decorators.serial
class FullCloudTest(base.BaseGpuSchedulingTest):
    """A cloud all of whose GPUs are in use."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the class unless the cloud may be filled."""
        super().skip_checks()
        if not CONF.gpu_scheduling.fill_cloud:
            raise cls.skipException("the cloud may not be filled: [gpu_scheduling]fill_cloud")

    def setUp(self) -> None:
        """Claim every GPU of the kind that requests get which name none."""
        super().setUp()
        self.whole = {"count": 1, "mode": "exclusive"}
        self.holders = []
        with contextlib.suppress(exceptions.Conflict):
            while True:
                self.holders.append(self.launch_program(cgpus=self.whole))
        self.gpus = len(self.holders)

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("dedd89e2-b24a-4117-8d44-cc13cf50e8ce")
    def test_a_refusal_counts_the_gpus_that_each_filter_left_out(self) -> None:
        for request in (self.whole, self.share()):
            error = self.refusal(
                exceptions.Conflict,
                "gsaas.capacity.busy",
                self.client.create_lease,
                cgpus=request,
                server=None,
            )
            self.assertEqual({"exclusive": self.gpus}, left_out(error))
        base.end(self.client, self.holders[0]["id"])
        error = self.refusal(
            exceptions.Conflict,
            "gsaas.capacity.busy",
            self.client.create_lease,
            cgpus={"count": 2, "mode": "exclusive"},
            server=None,
        )
        busy = {} if self.gpus == 1 else {"exclusive": self.gpus - 1}
        self.assertEqual(busy, left_out(error))
        self.assertEqual(1, error["gsaas"]["nearest"]["count"])

    @decorators.idempotent_id("51d1dd7b-ee15-4a3c-a108-e437e2f9852a")
    def test_requests_wait_and_are_served_in_order_when_gpus_are_released(self) -> None:
        first, second = (
            self.launch(cgpus=self.whole, server=None, wait=None)["lease"] for _ in range(2)
        )
        self.assertEqual(["QUEUED"] * 2, [lease["status"] for lease in (first, second)])
        self.assertEqual([], first["devices"])
        places = self.client.list_queue()["places"]
        self.assertEqual(
            [(1, first["name"]), (2, second["name"])],
            [(place["position"], place["name"]) for place in places],
        )
        # No request overtakes another one, however small it is.
        self.refusal(
            exceptions.Conflict,
            "gsaas.capacity.busy",
            self.client.create_lease,
            cgpus=self.share(),
            server=None,
        )

        base.end(self.client, self.holders[0]["id"])
        waiters.wait_for_lease_status(self.client, first["id"], "ACTIVE")
        waiting = self.client.show_lease(second["id"])["lease"]
        self.assertEqual(("QUEUED", 1), (waiting["status"], waiting["queue"]["position"]))

        base.end(self.client, first["id"])
        waiters.wait_for_lease_status(self.client, second["id"], "ACTIVE")
        self.assertEqual([], self.client.list_queue()["places"])

    @decorators.idempotent_id("11159ef6-b98b-4743-9b17-cccee0253c66")
    def test_a_waiting_request_leaves_the_queue_when_it_is_terminated(self) -> None:
        lease = self.launch(cgpus=self.whole, server=None, wait=600)["lease"]
        left = self.client.delete_lease(lease["id"])["lease"]
        self.assertEqual("RELEASED", left["status"])
        self.assertEqual([], self.client.list_queue()["places"])
