# SPDX-License-Identifier: Apache-2.0
"""[daemons]: the server side of the middleware on GPU hosts."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "daemons",
    title="Daemons of the middleware",
    help="The middleware's daemons on GPU hosts. `life` and `lease_ports` are read by controllers, too, and have to be "
    "the same everywhere; the rest is for gsaas-monitor. The driver's own values are the defaults of "
    "`command`, `environment`, `folder` and `health`; in these, {port}, {address}, {host}, {gpu_uuid}, "
    "{gpu_uuids}, {memory_mb}, {memory_mb_by_device}, {lease_id}, {position}, {key}, {folder}, {state_dir} and "
    "{max_clients} are filled in for each daemon. One that serves several GPUs of a lease has all in {gpu_uuids}, "
    "and the first in {gpu_uuid}.",
)

OPTS = [
    cfg.StrOpt(
        "life",
        choices=[
            (
                "per-gpu",
                "the monitor runs one daemon for each GPU; it serves every lease on that GPU",
            ),
            (
                "per-lease",
                "the monitor runs one daemon for each cGPU, or one for all of a lease (lupine), from its claim to its "
                "release",
            ),
            ("operator", "you run one daemon for each GPU yourself"),
        ],
        help="Which process starts daemons, and how long they live. Unset, the driver decides: per-lease for lupine, "
        "ggml and tvm, per-gpu for the others. Only with per-lease does a memory limit hold that tenants cannot reach, "
        "and is a lease's memory certainly free after its release. Change it only while there are no leases.",
    ),
    cfg.StrOpt(
        "lease_ports",
        default="20000-29999",
        help="TCP ports, FIRST-LAST, for daemons that serve one lease each. As many leases can share a GPU host as "
        "there are ports; where a driver is installed whose daemons have several, divide by these. They must not "
        "contain ports of daemons that serve whole GPUs, nor of anything else on these hosts; keep them "
        "out of net.ipv4.ip_local_port_range.",
    ),
    cfg.StrOpt(
        "command",
        help="Command line of a daemon, which stays in the foreground. It is split into words as a shell does it, but "
        "no shell runs it, and values are filled in afterwards, so that a value is never two words.",
    ),
    cfg.DictOpt(
        "environment",
        default={},
        help="More environment for daemons, as `NAME:value,NAME:value`; it overrides the driver's own. The "
        "monitor's own environment is not passed on.",
    ),
    cfg.StrOpt(
        "folder",
        help="Folder in which a daemon is started, and {folder} in the templates: where the middleware is.",
    ),
    cfg.StrOpt(
        "health",
        choices=[
            ("tcp", "it takes a TCP connection"),
            ("listens", "a process listens on its port; nothing connects"),
            ("http2", "it answers HEAD / over HTTP/2 with prior knowledge"),
            ("simulated", "it names its GPU, as the simulated one does"),
        ],
        help="How to check the health of a daemon. A lease becomes ACTIVE only after all its daemons are healthy. Do "
        "not use tcp with daemons that keep a process for each bare connection, as LUPINE's does, or that serve one "
        "connection after the other, as ggml's and TVM's do.",
    ),
    cfg.IntOpt(
        "max_clients",
        default=64,
        min=1,
        help="{max_clients} in the templates: how many clients one daemon serves at once, if its command has an "
        "option for it.",
    ),
    cfg.StrOpt(
        "memory_limit",
        default="mps",
        choices=[
            ("mps", "CUDA's own: daemons are clients of an MPS control daemon that you run"),
            ("library", "the library that `limit_library` names is preloaded into daemons"),
            ("none", "nothing on the GPU host limits memory"),
        ],
        help="What keeps the daemon of a cGPU in shared mode to its share. It concerns daemons that serve one cGPU "
        "each; one that serves a whole GPU cannot be limited from outside. A daemon whose limit cannot be put into "
        "effect is not started. The simulated driver computes nothing and needs none.",
    ),
    cfg.StrOpt(
        "mps_pipe_directory",
        default="/run/nvidia-mps",
        help="Where the MPS control daemon listens (its CUDA_MPS_PIPE_DIRECTORY); values may be filled in. Only root "
        "and the user of the monitor may have this folder and those that contain it, or write there; else daemons with "
        "a limit are not started. NVIDIA's own default, /tmp/nvidia-mps, any user can make before MPS starts. With "
        "{gpu_uuid} in it there is one control daemon for each GPU, and only the daemons of one GPU share a user; a "
        "daemon that serves several GPUs of a lease (lupine) cannot be limited then, and is not started.",
    ),
    cfg.StrOpt(
        "limit_library",
        help="File of the library that limits memory, such as HAMi-core's libvgpu.so; for memory_limit = library.",
    ),
    cfg.DictOpt(
        "limit_environment",
        help="Variables that set the limit, as templates. Unset: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT with mps, "
        "HAMi-core's with library.",
    ),
    cfg.StrOpt(
        "isolation",
        default="shared-user",
        choices=[
            (
                "shared-user",
                "daemons with a limit by MPS run as one user for each MPS control daemon, kept apart by namespaces",
            ),
            ("own-user", "every daemon has a user of its own; one that needs MPS is not started"),
        ],
        help="Whether daemons may share a user. An MPS server serves one user at a time, so daemons whose memory MPS "
        "limits have to share one: all of those on a GPU if mps_pipe_directory contains {gpu_uuid}, else all of "
        "those on the host. doc/security.md says what such a daemon could do to another one. All other daemons "
        "have a user of their own anyway.",
    ),
    cfg.BoolOpt(
        "own_devices",
        default=True,
        help="Let each daemon use the device node of its own GPU only: otherwise it can use every GPU of the host, and "
        "NVML, and with it nvidia-smi in a VM, shows them. Without it, a daemon may open all devices of NVIDIA's "
        "driver. The simulated driver has no devices.",
    ),
    cfg.ListOpt(
        "device_nodes",
        default=[],
        help="More device nodes for every daemon, as names in /dev, beside NVIDIA's control nodes and the usual ones.",
    ),
    cfg.IntOpt(
        "host_memory_mb",
        default=32768,
        min=0,
        help="MiB of the host's own memory that each daemon may use; one that needs more is ended, and started again. "
        "Too little, and programs with large pinned or managed memory lose their GPU; too much, and one tenant "
        "can exhaust the host. 0 means no limit. The daemon of a CPU device has its share instead, and what it needs "
        "itself.",
    ),
    cfg.IntOpt(
        "tmp_mb",
        default=1024,
        min=1,
        help="MiB of temporary files that each daemon may have: its /tmp and /var/tmp are one file system of its own "
        "in memory, which counts to its host_memory_mb. Too little, and a middleware that keeps data there fails with "
        "ENOSPC; a value near host_memory_mb lets such files end the daemon.",
    ),
    cfg.IntOpt(
        "tasks",
        default=4096,
        min=16,
        help="Processes and threads that each daemon may have. Some middlewares have a process for every connection, "
        "and CUDA a few threads for each.",
    ),
    cfg.StrOpt(
        "user",
        deprecated_for_removal=True,
        deprecated_since="1.0.0",
        deprecated_reason="It has no effect: systemd makes a user for each daemon. See isolation.",
        help="User that daemons ran as, until systemd made a user for each of them.",
    ),
    cfg.FloatOpt(
        "start_timeout",
        default=30.0,
        min=1.0,
        max=3600.0,
        help="Seconds until a daemon has to be healthy; then it is killed and started again. Too short, and a slow GPU "
        "never gets one; too long, and a broken one keeps its tenant waiting. Keep it below [engine]boot_timeout.",
    ),
    cfg.FloatOpt(
        "stop_timeout",
        default=10.0,
        min=0.0,
        max=3600.0,
        help="Seconds from asking a daemon to end (SIGTERM) until it is killed with all its children. At 0, a running "
        "CUDA call is cut off; at an hour, a GPU comes back an hour after its release.",
    ),
    cfg.FloatOpt(
        "first_pause",
        default=1.0,
        min=0.1,
        max=3600.0,
        help="Seconds before a daemon that ended is started again. It doubles each time, up to longest_pause.",
    ),
    cfg.FloatOpt(
        "longest_pause",
        default=60.0,
        min=0.1,
        max=3600.0,
        help="The longest such pause. A daemon that was healthy for longer than this begins with first_pause again.",
    ),
    cfg.StrOpt(
        "state_dir",
        default="/run/gsaas-monitor",
        help="A folder of the monitor's own, which one monitor at a time locks. Daemons are recorded by systemd.",
    ),
    cfg.StrOpt(
        "log_dir",
        default="/var/log/gsaas/daemons",
        deprecated_for_removal=True,
        deprecated_since="1.0.0",
        deprecated_reason="It has no effect: the journal has the output of daemons, and bounds it.",
        help="Where the output of daemons went, until the journal had it.",
    ),
    cfg.IntOpt(
        "log_mb",
        default=10,
        min=1,
        max=10_000,
        deprecated_for_removal=True,
        deprecated_since="1.0.0",
        deprecated_reason="It has no effect: the journal has the output of daemons, and bounds it.",
        help="MiB of output that were kept of each daemon, twice.",
    ),
    cfg.IntOpt(
        "log_days",
        default=14,
        min=0,
        max=3650,
        deprecated_for_removal=True,
        deprecated_since="1.0.0",
        deprecated_reason="It has no effect: the journal has the output of daemons, and bounds it.",
        help="Days for which the output of a daemon was kept after its end.",
    ),
    cfg.BoolOpt(
        "fence",
        default=True,
        help="Refuse connections to daemons' ports from everywhere but the compute hosts of leases that they serve. It "
        "needs CAP_NET_ADMIN. Without it, every machine on the GPU network can use every GPU.",
    ),
    cfg.IntOpt(
        "connections_per_source",
        default=256,
        min=1,
        max=65535,
        help="Most connections that one compute host may have to one daemon at a time; more are refused. Some "
        "middlewares keep a process for every connection.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: OPTS}
