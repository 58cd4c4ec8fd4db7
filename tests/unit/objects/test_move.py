# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from gsaas.objects import move
from gsaas.objects.access import Access
from gsaas.objects.daemon import Daemon
from gsaas.objects.lease import Claim, Lease
from gsaas.objects.lifecycle import Status

LEASE = Lease(
    id="l",
    project_id="p",
    user_id="u",
    name="n",
    status=Status.ACTIVE,
    count=2,
    mode="shared",
    memory_mb=1024,
    locality="any",
    access=Access.MASKED,
)
ONE_DAEMON = LEASE.with_(requirements={"one_daemon": True})


@pytest.mark.parametrize(
    ("lease", "index", "why"),
    [
        (LEASE, None, None),
        (LEASE, 1, None),
        (ONE_DAEMON, None, None),
        (ONE_DAEMON.with_(count=1), 0, None),
        *((LEASE.with_(status=status), None, status) for status in Status if status != "ACTIVE"),
        (LEASE.with_(access=Access.NATIVE), None, "devices of their own host"),
        (LEASE.with_(access=Access.DIRECT), None, "real addresses"),
        (LEASE.with_(reservation_id="r"), None, "reservation"),
        (LEASE, 2, "it has no cGPU 2"),
        (LEASE, -1, "it has no cGPU -1"),
        (ONE_DAEMON, 0, "one daemon serves all its 2 cGPUs"),
    ],
)
def test_what_can_move_and_why_the_rest_cannot(lease, index, why):
    reason = move.refusal(lease, index)
    if why is None:
        assert reason is None
    else:
        assert why in reason


def test_two_daemons_of_one_cgpu_have_names_of_their_own():
    first, second = (
        Daemon("GPU-1", 20000 + turn, 1024, "lease", position=1, turn=turn) for turn in (0, 1)
    )
    assert (first.key, second.key) == ("lease-1", "lease-1.1")
    assert "turn" not in first.to_dict(), "monitors of the release before would refuse it"
    assert Daemon.from_dict(second.to_dict()) == second
    claim = Claim("lease", 1, "GPU-1", 1024, daemon_host="a", daemon_port=20001, daemon_turn=1)
    assert claim.daemon_key == second.key
