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
The middleware of leases with GPUs (but see `native`), and of all others unless `cpu_driver` names another: an entry
point of `gsaas.remoting`. GSaaS brings `rcuda`, `lupine`, `ggml` (llama.cpp's RPC), `tvm` (Apache TVM's RPC), and
`simulated`, which computes nothing and is for demonstrations and tests. Changing it affects new leases only:
existing servers keep their environment, so drain first.
""",
    ),
    cfg.StrOpt(
        "cpu_driver",
        help="""
The middleware of leases with CPU devices, if it is another than `driver`: `ggml` or `tvm`. GPU hosts with CPU devices
run its daemons, all others those of `driver`. Unset, `driver` serves both kinds if it can, and requests for CPU devices
are refused if it cannot. Set the same on controllers and GPU hosts.
""",
    ),
    cfg.StrOpt(
        "default_kind",
        default="cuda",
        choices=[("cuda", "GPUs of NVIDIA"), ("cpu", "CPU devices")],
        help="""
The kind of devices that a request gets which names none. It never gets others, even if those that it asks for are in
use. `cpu` is for clouds that have CPU devices only: elsewhere, programs made for CUDA would get devices that they
cannot use. With an inventory of CPU devices alone, gsaas-standalone takes `cpu` by default.
""",
    ),
    cfg.StrOpt(
        "library_path",
        help="""
Folder, inside the servers, of the client libraries of `driver`; it goes first in
`LD_LIBRARY_PATH`, before what is there already. Unset, it is where the middleware usually lives
(`/opt/rCUDA/lib`, `/opt/lupine/lib`, `/opt/llama.cpp/lib`; nowhere for `tvm`, which is a package of
Python); set it to where your images keep it. Empty, `LD_LIBRARY_PATH` is left alone, which suits images whose
dynamic linker finds the libraries by itself. Name a folder that holds nothing else: every program of the server
looks there first.
""",
    ),
    cfg.StrOpt(
        "cpu_library_path",
        help="The same for the client libraries of `cpu_driver`, if that is another middleware than `driver`.",
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
Whether several daemons may serve one lease with a middleware whose clients confuse devices if two daemons
return the same device pointer. That is LUPINE; others ignore this option. Off, one daemon serves all cGPUs of a
lease, which are on one GPU host then, each on a GPU of its own; where daemons serve GPUs and not leases
(`[daemons]life`), a lease can have one cGPU. On, the cGPUs of a lease may be on any GPUs and hosts, and a program may
compute with the data of another of its cGPUs, without an error, if the driver of your GPUs hands out equal
pointers: `gsaas-manage prove gpu-host` measures whether it does.
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
