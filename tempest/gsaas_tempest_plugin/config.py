# SPDX-License-Identifier: Apache-2.0
"""Options of `tempest.conf`."""

from __future__ import annotations

from oslo_config import cfg

SERVICE_AVAILABLE_GROUP = cfg.OptGroup("service_available")

SERVICE_AVAILABLE_OPTS: list[cfg.Opt] = [
    cfg.BoolOpt("gsaas", default=True, help="Whether the cloud has GSaaS."),
]

GROUP = cfg.OptGroup("gpu_scheduling", title="GSaaS, GPU scheduling as a service")

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "catalog_type",
        default="gpu-scheduling",
        help="The type of GSaaS's service in Keystone's catalogue.",
    ),
    cfg.StrOpt(
        "region",
        default="",
        help="The region of GSaaS's endpoint; by default [identity]region.",
    ),
    cfg.StrOpt(
        "endpoint_type",
        default="publicURL",
        choices=["public", "admin", "internal", "publicURL", "adminURL", "internalURL"],
        help="Which of GSaaS's endpoints to use.",
    ),
    cfg.IntOpt(
        "build_timeout",
        default=300,
        help="Seconds until a lease must have the status that a test waits for. It includes the boot of a VM until "
        "Nova reports it as active, and the deletion of a VM.",
    ),
    cfg.IntOpt(
        "build_interval",
        default=1,
        help="Seconds between two requests while a test waits.",
    ),
    cfg.StrOpt(
        "min_microversion",
        help="The oldest microversion of GSaaS's API to test. Requests ask for it, or for the oldest one that a test "
        "needs, if that is newer.",
    ),
    cfg.StrOpt(
        "max_microversion",
        default="latest",
        help="The newest microversion of GSaaS's API to test; tests that need a newer one are skipped.",
    ),
    cfg.StrOpt(
        "image_ref",
        help="The image of VMs with cGPUs; by default [compute]image_ref.",
    ),
    cfg.StrOpt(
        "flavor_ref",
        help="The flavor of VMs with cGPUs; by default [compute]flavor_ref. Its VMs must run on compute hosts with "
        "gsaas-rodvr.",
    ),
    cfg.BoolOpt(
        "guest_reports",
        default=False,
        help="Whether the image runs user data with cloud-init, has Python 3, and writes /dev/console to the console "
        "log that Nova shows. CirrOS does not. If false, the tests from inside a VM are skipped.",
    ),
    cfg.IntOpt(
        "guest_timeout",
        default=600,
        help="Seconds from the activation of a lease until its VM must have run its user data.",
    ),
    cfg.IntOpt(
        "cgpu_memory_mb",
        default=64,
        min=1,
        help="MiB of GPU memory of each shared cGPU that a test asks for.",
    ),
    cfg.StrOpt(
        "masked_prefix",
        default="169.254.71.0/24",
        help="The network of masked addresses, [rodvr]masked_prefix in the configuration of GSaaS.",
    ),
    cfg.PortOpt(
        "masked_port",
        default=8308,
        help="The port of masked addresses, which is that of the daemons of the remote-CUDA middleware: 8308 for rCUDA "
        "and the simulated one, 14833 for LUPINE.",
    ),
    cfg.IntOpt(
        "cgpu_quota",
        default=-1,
        min=-1,
        help="How many cGPUs GSaaS allows each project of the tests; -1 for no limit. The test of quotas asks for one "
        "more, of cgpu_memory_mb MiB each, which must fit into the free GPU memory. With -1 it is skipped.",
    ),
    cfg.BoolOpt(
        "fill_cloud",
        default=False,
        help="Whether tests may claim every GPU of the cloud for a moment, which the test of the queue needs. "
        "Set it only on a cloud whose GPUs nobody else uses meanwhile.",
    ),
]
