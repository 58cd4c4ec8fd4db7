"""A VM reaches exactly the daemons its masked addresses are mapped to."""

from __future__ import annotations

import pytest

from gsaas.rodvr.endpoint import Endpoint
from tests.kernel.rodvr.lab import A, B, Lab

pytestmark = pytest.mark.kernel


def test_a_masked_address_reaches_the_daemon_it_is_mapped_to(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.ask("vm1", A) == "g1:8308 peer=192.168.50.1"


def test_a_masked_address_may_stand_for_another_port(lab: Lab, endpoint: Endpoint) -> None:
    assert lab.reaches("vm1", B) == "g2:8309"
