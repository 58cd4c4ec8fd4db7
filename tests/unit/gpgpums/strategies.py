"""Small clouds and requests for Hypothesis: small enough that refusals and ties are common."""

from __future__ import annotations

from hypothesis import strategies as st

from gsaas.gpgpums.state import ANY, EXCLUSIVE, LOCAL, REMOTE, SHARED, Gpu, Request, Withheld

HOSTS = ("a", "b", "c")
SIZES = (1, 2, 3, 4)

compute_hosts = st.frozensets(st.sampled_from([*HOSTS, "d"]))
localities = st.sampled_from([ANY, LOCAL, REMOTE])


@st.composite
def gpus(draw: st.DrawFn, place: tuple[str, int]) -> Gpu:
    host, device_index = place
    memory_mb = draw(st.sampled_from(SIZES))
    exclusive = draw(st.booleans())
    used_mb = memory_mb if exclusive else draw(st.integers(0, memory_mb))
    withheld = draw(st.sampled_from([None, None, None, *Withheld]))
    return Gpu(
        f"GPU-{host}{device_index}",
        host,
        device_index,
        memory_mb,
        used_mb,
        exclusive,
        withheld=withheld,
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
    mode = draw(st.sampled_from([SHARED, EXCLUSIVE]))
    memory_mb = draw(st.sampled_from([*SIZES, 5])) if mode == SHARED else None
    return Request(draw(st.integers(1, 4)), mode, memory_mb, draw(localities))
