# SPDX-License-Identifier: Apache-2.0
"""Versions and microversions."""

from __future__ import annotations

from tempest.lib import decorators, exceptions

from gsaas_tempest_plugin.services.gpu_scheduling_client import MICROVERSION_HEADER, SERVICE
from gsaas_tempest_plugin.tests import base


class VersionsTest(base.BaseGpuSchedulingTest):
    """What a client learns that knows only the endpoint."""

    def header(self, microversion: str | None) -> str:
        """Return the microversion header of a response to a request that asks for *microversion*."""
        client = self.client_of(self.os_primary)
        client.microversion = microversion
        return str(client.list_leases().response[MICROVERSION_HEADER.lower()])

    @decorators.idempotent_id("9b3e925f-fb7a-4934-970f-43417177c905")
    def test_one_major_version_is_current(self) -> None:
        versions = self.client.list_versions()["versions"]
        current = [version for version in versions if version["status"] == "CURRENT"]
        self.assertEqual([self.client.show_version()["version"]], current)

    @decorators.idempotent_id("3fdcac52-bfc9-49af-a828-326dd7deb2dc")
    def test_the_response_names_its_microversion(self) -> None:
        version = self.client.show_version()["version"]
        for asked, answered in (
            (None, version["min_version"]),
            (version["min_version"], version["min_version"]),
            (version["max_version"], version["max_version"]),
            ("latest", version["max_version"]),
        ):
            self.assertEqual(f"{SERVICE} {answered}", self.header(asked))

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("b4b44bc4-2afe-4157-ab5b-c35b3725c0a7")
    def test_an_unknown_microversion_is_refused(self) -> None:
        self.refusal(
            exceptions.NotAcceptable, "gsaas.microversion.unsupported", self.header, "1.99999"
        )

    @decorators.attr(type=["negative"])
    @decorators.idempotent_id("338a69e0-2f3d-4bc6-b447-3ff76c370d6d")
    def test_a_malformed_microversion_is_refused(self) -> None:
        self.refusal(exceptions.BadRequest, "gsaas.microversion.malformed", self.header, "one")
