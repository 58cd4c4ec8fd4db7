# SPDX-License-Identifier: Apache-2.0
"""Quotas: how much one project may have at once."""

from __future__ import annotations

from tempest import config
from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.tests import base

CONF = config.CONF


class QuotasTest(base.BaseGpuSchedulingTest):
    """A project with a limited number of cGPUs."""

    @classmethod
    def skip_checks(cls) -> None:
        """Skip the class if projects have no such limit."""
        super().skip_checks()
        if CONF.gpu_scheduling.cgpu_quota < 0:
            raise cls.skipException("projects have no limit: [gpu_scheduling]cgpu_quota")

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("e85c06c7-5be2-4f77-9dc7-8e965d6c6053")
    def test_a_launch_beyond_the_quota_is_refused_with_the_numbers(self) -> None:
        quota = CONF.gpu_scheduling.cgpu_quota
        self.launch_program()
        limits = self.client.show_limits()["limits"]
        self.assertEqual(quota, limits["cgpus"]["limit"])
        used = limits["cgpus"]["used"]
        error = self.refusal(
            exceptions.Forbidden,
            "gsaas.quota.exceeded",
            self.client.create_lease,
            cgpus=self.share(quota),
            server=None,
        )
        self.assertIn(
            {"name": "cgpus", "used": used, "asked": quota, "limit": quota},
            error["gsaas"]["quotas"],
        )
        for number in (quota, used):
            self.assertIn(str(number), error["detail"])
        self.assertEqual(limits, self.client.show_limits()["limits"])
