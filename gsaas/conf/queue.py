# SPDX-License-Identifier: Apache-2.0
"""Options of the queue: how requests wait for GPUs."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "queue",
    title="Queue",
    help="How requests wait for GPUs, and which of them is served next.",
)

OPTS: list[cfg.Opt] = [
    cfg.BoolOpt(
        "backfill",
        default=False,
        help="Whether a request may be served before an earlier one. If false, the queue is served in order: while "
        "the first request does not fit, GPUs that later requests could use stay idle. If true, a later request is "
        "served if it uses only GPUs that no request before it could use at all (too small, or of another model), so "
        "it delays no other request.",
    ),
    cfg.IntOpt(
        "reserve_for",
        default=3600,
        min=-1,
        max=31536000,
        help="Seconds, from when a request joined the queue, for which it keeps later requests from the GPUs that it "
        "waits for. After that it keeps its place and is served as soon as it fits, but others are served meanwhile. "
        "At 0, small requests always go before a large one that does not fit, which may then wait for ever; at -1, the "
        "order is strict, and one request for all GPUs bars everybody until all leases have ended.",
    ),
    cfg.IntOpt(
        "lowest_priority",
        default=-100,
        max=0,
        help="The lowest priority that a request may name; the default is 0. Every caller may name a negative "
        "priority, and so let other requests go first. At 0, no request can.",
    ),
    cfg.IntOpt(
        "highest_priority",
        default=100,
        min=0,
        help="The highest priority that a request may name, if its caller may name one above 0 at all (the rule "
        "gsaas:leases:prioritise). At 0, no request can go before others.",
    ),
    cfg.IntOpt(
        "most_per_project",
        default=4096,
        min=-1,
        help="Most requests of one project that may wait at once; -1 means no limit; at 0, no request may wait. Each "
        "takes a row in the database and, while its client waits, a thread of an API worker.",
    ),
    cfg.IntOpt(
        "most_kb_per_project",
        default=16384,
        min=-1,
        help="Most KiB of server fields, such as user data, that the requests of one project may have in the database "
        "while they wait; -1 means no limit. At 0, only requests without server fields may wait. The fields of a "
        "request are removed as soon as its server exists or it leaves the queue.",
    ),
    cfg.FloatOpt(
        "client_timeout",
        default=60.0,
        min=1.0,
        max=86400.0,
        help="Seconds after which a client that announced to poll (`attended`), and has not polled, counts as gone: "
        "its request is removed from the queue. Clients poll every 25 seconds; with a shorter timeout, requests are "
        "removed wrongly. At an hour, the request of a crashed client may block GPUs for an hour.",
    ),
    cfg.FloatOpt(
        "recheck_interval",
        default=5.0,
        min=0.1,
        max=600.0,
        help="Seconds between two queries of the database by an API worker on behalf of a waiting client. "
        "The worker is notified of each change at once, so this only matters if the message bus loses a "
        "message. At 0.1, a thousand waiting clients cause ten thousand queries a second.",
    ),
    cfg.IntOpt(
        "long_polls",
        default=48,
        min=0,
        max=100000,
        help="Most long polls, the requests of waiting clients, that one API worker keeps open, each in a thread of "
        "its own; further clients are answered at once and poll again after a second. Keep it below the number of "
        "threads of a worker (gunicorn --threads, uWSGI threads), or waiting clients leave no thread for others. "
        "At 0, all waiting clients poll once a second. The default of gsaas-standalone is 512; it has as many "
        "threads in addition to those for other requests.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
