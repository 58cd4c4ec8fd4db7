"""Options of the queue: how requests wait for GPUs."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "queue",
    title="Queue",
    help="How requests that ask to wait for GPUs do so, and whose turn it is.",
)

OPTS = [
    cfg.BoolOpt(
        "backfill",
        default=False,
        help="Whether a request may be served before one that came earlier. Off, the queue moves in order: while "
        "the first request does not fit, GPUs that others could use stay idle. On, a later request may go if it uses "
        "only GPUs that nobody before it could use at all (too small, or of another model), so nobody is delayed.",
    ),
    cfg.IntOpt(
        "lowest_priority",
        default=-100,
        max=0,
        help="The lowest priority that a request may name. Everybody may go behind the others, who have 0. At 0, "
        "nobody can be so polite.",
    ),
    cfg.IntOpt(
        "highest_priority",
        default=100,
        min=0,
        help="The highest priority that a request may name, if its caller may name one above 0 at all (the rule "
        "gsaas:leases:prioritise). At 0, everybody waits in one line.",
    ),
    cfg.IntOpt(
        "most_per_project",
        default=4096,
        min=-1,
        help="Most requests of one project that may wait at once; -1 is no limit, at 0 nobody waits. Each costs "
        "a row in the database and, with a client that waits for it, a thread of an API worker.",
    ),
    cfg.FloatOpt(
        "client_timeout",
        default=60.0,
        min=1.0,
        max=86400.0,
        help="Seconds after which a client that said it would keep asking, and was not heard of, is taken for gone: "
        "its place is given to the next. A client asks anew every 25 seconds; below that, places are lost. At "
        "an hour, GPUs may be kept for an hour for a client that crashed.",
    ),
    cfg.FloatOpt(
        "recheck_interval",
        default=5.0,
        min=0.1,
        max=600.0,
        help="Seconds between two looks at the database by an API worker on behalf of a client that waits. "
        "It is told at once when something happens, so this only matters when the message bus loses a "
        "message. At 0.1, a thousand waiting clients cost ten thousand queries a second.",
    ),
    cfg.IntOpt(
        "long_polls",
        default=48,
        min=0,
        max=100000,
        help="Most requests of clients that wait which one API worker keeps open, each in a thread of its own; "
        "clients beyond that are answered at once and ask again after a second. Keep it below the number of "
        "threads of a worker (gunicorn --threads, uWSGI threads), or waiting clients leave none for the others. "
        "At 0, everybody asks once a second. gsaas-standalone has 512 where nothing else is said, and as many threads "
        "more than it needs for the rest.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
