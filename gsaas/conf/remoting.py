# SPDX-License-Identifier: Apache-2.0
"""Options for the remote-CUDA middleware: which one, and what its clients find in a server."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "remoting",
    title="Remote-CUDA middleware",
    help="What carries CUDA calls from the servers to the GPUs.",
)

OPTS = [
    cfg.StrOpt(
        "driver",
        default="rcuda",
        help="""
The middleware of this cloud, one for all its leases (but see `native`): an entry point of `gsaas.remoting`. GSaaS
brings `rcuda`, `lupine`, and `simulated`, which computes nothing and is for demonstrations and
tests. Changing it affects new leases only: existing servers keep their environment, so drain first.
""",
    ),
    cfg.StrOpt(
        "library_path",
        help="""
Folder, inside the servers, of the middleware's client libraries; it goes first in
`LD_LIBRARY_PATH`, before what is there already. Unset, it is where the middleware usually lives
(`/opt/rCUDA/lib`, `/opt/lupine/lib`); set it to where your images keep it. Empty, `LD_LIBRARY_PATH`
is left alone, which suits images whose dynamic linker finds the libraries by itself. Name a folder
that holds nothing else: every program of the server looks there first.
""",
    ),
    cfg.StrOpt(
        "client_version",
        help="""
The version of the middleware's client libraries in your images, as its daemons report theirs: `gsaas-manage
check` then names the GPU hosts whose daemons have another one. A client and a daemon of LUPINE that differ hang
without a message. Unset, only the GPU hosts are compared with each other.
""",
    ),
    cfg.BoolOpt(
        "several_daemons",
        default=False,
        help="""
Whether a lease may have several cGPUs with a middleware whose clients confuse devices if two daemons
return the same device pointer. That is LUPINE; others ignore this option. Off, such a request is refused
with this reason. On, a program may compute with the data of another of its cGPUs, without an error, if the
driver of your GPUs hands out equal pointers: `gsaas-manage prove gpu-host` measures whether it does.
""",
    ),
    cfg.BoolOpt(
        "native",
        default=False,
        help="""
Whether a lease without a server, whose consumer runs on the host that has all its GPUs, uses them with
the host's own CUDA and without the middleware. On, such programs have no overhead of a network, and only
CUDA's multi-process service limits them to their share: for hosts whose users are trusted. Off, they use
the middleware like all others.
""",
    ),
    cfg.DictOpt(
        "extra_environment",
        default={},
        help="""
More variables for every server, as `NAME:value,NAME:value`: what your release of the middleware
needs and GSaaS does not set, such as `RCUDAPROTO:TCP` for older rCUDA releases, or
`LUPINE_LOG_LEVEL:debug` to find the cause of an error. Empty adds none. Variables by which GSaaS tells
where the GPUs are cannot be set here, and a value has to be printable and free of `#` and `%`:
the service refuses to start otherwise.
""",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    # By name: an OptGroup object, and the values set in it, would be shared by every ConfigOpts.
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: OPTS}
