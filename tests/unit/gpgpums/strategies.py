# SPDX-License-Identifier: Apache-2.0
"""Small clouds and requests for Hypothesis: small enough that refusals and ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from gsaas.objects.gpu import EXCLUSIVE, SHARED, Gpu, WithheldReason
from gsaas.objects.request import ANY, LOCAL, ONE, REMOTE, SPREAD, Request

HOSTS = ("a", "b", "c")
SIZES = (1, 2, 3, 4)
KINDS = ("cuda", "cuda", "cpu")
MODELS = ("NVIDIA A100", "Tesla V100")

compute_hosts = st.frozensets(st.sampled_from([*HOSTS, "d"]))
localities = st.sampled_from([ANY, LOCAL, REMOTE])


@st.composite
def gpus(draw: st.DrawFn, place: tuple[str, int]) -> Gpu:
    host, device_index = place
    memory_mb = draw(st.sampled_from(SIZES))
    exclusive = draw(st.booleans())
    used_mb = memory_mb if exclusive else draw(st.integers(0, memory_mb))
    withheld = draw(st.sampled_from([None, None, None, *WithheldReason]))
    return Gpu(
        f"{draw(st.sampled_from(['GPU', 'GPU', 'CPU']))}-{host}{device_index}",
        host,
        device_index,
        memory_mb,
        used_mb,
        exclusive,
        withheld=withheld,
        model=draw(st.sampled_from(MODELS)),
        compute_capability=draw(st.sampled_from([None, (7, 0), (8, 0)])),
        leases=draw(st.integers(0, 3)),
        given=draw(st.integers(0, 3)),
        utilisation=draw(st.sampled_from([None, 0.0, 50.0])),
    )


@st.composite
def clouds(draw: st.DrawFn, max_size: int = 5) -> list[Gpu]:
    places = draw(
        st.lists(
            st.tuples(st.sampled_from(HOSTS), st.integers(0, 2)), unique=True, max_size=max_size
        )
    )
    return [draw(gpus(place)) for place in places]


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Half of them insist on nothing but size and locality."""
    mode = draw(st.sampled_from([SHARED, EXCLUSIVE]))
    memory_mb = draw(st.sampled_from([*SIZES, 5])) if mode == SHARED else None
    request = Request(
        draw(st.integers(1, 4)),
        mode,
        memory_mb,
        draw(localities),
        consumer_host=draw(st.sampled_from([None, "a", "b"])),
    )
    if draw(st.booleans()):
        return request
    hosts, host = draw(st.sampled_from([ANY, ONE, SPREAD])), draw(st.sampled_from([None, "b"]))
    if hosts == SPREAD and request.count > 1 and (host or request.locality == LOCAL):
        hosts = ANY
    return request.with_(
        gpu_model=draw(st.sampled_from([None, "a100", "V100"])),
        compute_capability=draw(st.sampled_from([None, (7, 0), (8, 0)])),
        hosts=hosts,
        host=host,
        kind=draw(st.sampled_from(KINDS)),
        one_daemon=hosts != SPREAD and draw(st.booleans()),
    )


@st.composite
def mixes(draw: st.DrawFn) -> list[tuple[Request, float]]:
    kinds = draw(st.lists(requests(), max_size=3))
    return [
        (
            kind.with_(count=1, locality=ANY, hosts=ANY, host=None, one_daemon=False),
            draw(st.sampled_from([1.0, 3.0])),
        )
        for kind in kinds
    ]
