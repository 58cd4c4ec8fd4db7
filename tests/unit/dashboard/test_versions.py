# SPDX-License-Identifier: Apache-2.0
"""URLs and versions of services."""

from __future__ import annotations

import pytest

from gsaas_dashboard import versions
from gsaasclient.sdk.base import NEWEST


@pytest.mark.parametrize(
    ("endpoint", "version", "url"),
    [
        ("http://cloud:9871", "v1", "http://cloud:9871/v1"),
        ("http://cloud/gpu/", "v1", "http://cloud/gpu/v1"),
        ("http://cloud:9871/v1/", "v1", "http://cloud:9871/v1"),
        ("http://cloud/compute/v2.1", "", "http://cloud/compute/v2.1"),
        ("http://cloud:5000/v3", "v3", "http://cloud:5000/v3"),
    ],
)
def test_the_url_of_a_version(endpoint: str, version: str, url: str) -> None:
    assert versions.within(endpoint, version) == url


def test_the_newest_microversion_that_both_know() -> None:
    assert versions.newest({"max_version": "1.0"}) == "1.0"
    assert versions.newest({"max_version": "1.1000"}) == NEWEST
