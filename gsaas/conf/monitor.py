# SPDX-License-Identifier: Apache-2.0
"""Options of gsaas-monitor, the agent of a GPU host."""

from __future__ import annotations

from oslo_config import cfg, types

GROUP = cfg.OptGroup("monitor", title="GPU host agent", help="How a GPU host reports its GPUs.")

OPTS = [
    cfg.StrOpt(
        "source",
        default="nvml",
        choices=[
            ("nvml", "what NVIDIA's driver reports of this host"),
            (
                "declared",
                "what the file `inventory` declares of this host; nothing is read from the GPUs",
            ),
            (
                "cpu",
                "parts of this host's processors and memory, as `cpu_devices` and the options after it divide them",
            ),
            (
                "simulated",
                "the same as declared, with simulated readings: for tests and demonstrations",
            ),
        ],
        help="Where the monitor reads the GPUs of its host. With nvml, CUDA_VISIBLE_DEVICES in its environment narrows "
        "what it reports.",
    ),
    cfg.StrOpt(
        "gpu_address",
        help="IPv4 address of this host on the GPU network, at which the daemons of its GPUs listen. Needed with "
        "source = nvml; with the others the default is the address in the inventory.",
    ),
    cfg.IntOpt(
        "cpu_devices",
        default=1,
        min=1,
        max=256,
        help="With source = cpu, as how many devices this host is offered. Leave cores and memory for the host itself.",
    ),
    cfg.IntOpt(
        "cpu_device_cores",
        min=1,
        help="With source = cpu, how many cores each device has; unset, all cores that the monitor may use are "
        "divided. The daemons of a device share its cores, and get no others.",
    ),
    cfg.IntOpt(
        "cpu_device_memory_mb",
        min=1,
        help="With source = cpu, how many MiB of this host's memory each device has. Each daemon needs some for itself "
        "besides: 128 MiB with ggml, 160 with tvm.",
    ),
    cfg.ListOpt(
        "fatal_xids",
        item_type=types.Integer(min=1),
        default=[48, 63, 64, 74, 79, 92, 94, 95, 119],
        help="XID errors (NVIDIA's numbers of what the driver reports) after which a GPU is withdrawn until an "
        "operator enables it again. The default contains those that report broken memory, links or processors. Without "
        "any, a GPU is withdrawn only while it does not answer; with those that a tenant's own program can cause, "
        "such as 13 or 31, any tenant can take GPUs out of service.",
    ),
    cfg.IntOpt(
        "unified_memory_mb",
        min=1,
        max=2**31 - 1,
        help="With source = nvml, how many MiB are offered of each GPU whose memory the driver does not tell, because "
        "it is that of the host, as with GB10. Unset, such a GPU is left out, and the host has a problem that says so. "
        "With more than the host can spare, programs of tenants and of the host fail for lack of memory.",
    ),
    cfg.IntOpt(
        "utilisation_window",
        default=300,
        min=1,
        max=86400,
        help="Seconds over which the mean utilisation of a GPU is computed, by which some policies choose. A few "
        "seconds make them follow every pause of a program; an hour hides that a GPU has been idle for long.",
    ),
    cfg.StrOpt(
        "inventory",
        default="/etc/gsaas/inventory.toml",
        help="TOML file that declares GPU hosts (etc/gsaas/gpu-host.toml shows all it can say). The monitor "
        "reports the host that has its own name, so one file may serve all hosts. Its content is not "
        "checked against the hardware: a GPU that does not exist, or too much memory, is given to tenants whose "
        "programs then fail.",
    ),
    cfg.IntOpt(
        "monitor_interval",
        default=10,
        min=1,
        max=3600,
        help="Seconds between two reports of a GPU host, unless an operator has set the interval of all hosts (`gsaas "
        "settings -interval=SECONDS`). At 1, a failing GPU is noticed at once and a large "
        "cloud fills its message bus with reports; at an hour, noticing may take an hour. A host counts as silent "
        "after [gpgpums]heartbeat_timeout, but not before it has missed three of its reports.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options, for the sample configuration file."""
    return {GROUP: OPTS}
