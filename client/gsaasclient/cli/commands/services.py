# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` that Slurm calls, or that change a running GSaaS."""

from __future__ import annotations

from gsaasclient.cli.commands.options import OUTPUT, no_time_or, seconds_or_default
from gsaasclient.cli.parser import CommandSpec, Handler, Help, Option, one_of
from gsaasclient.quantities import seconds

SERVICES = (
    CommandSpec(
        "slurm",
        Help(
            "give cGPUs to the jobs of Slurm, which calls this (operators)",
            usage="gsaas slurm prolog-slurmctld|prolog|epilog|reconcile [option ...]",
            example="gsaas slurm reconcile",
            details="""
prolog-slurmctld claims cGPUs for each node of a job, prolog fetches their environment on a node,
and epilog releases them. reconcile releases the leases whose job has not had their node for a
while, as after the failure of a node; a timer calls it on the controller.

The job is described by the environment that Slurm gives its prologs. Failures are also written to
the system log.""",
        ),
        Handler("slurm.command:slurm"),
        options=(
            Option(
                "program",
                "PROGRAM",
                "which one: prolog-slurmctld, prolog, epilog or reconcile",
                convert=one_of("prolog-slurmctld", "prolog", "epilog", "reconcile"),
            ),
            Option(
                "wait",
                "DURATION",
                "prolog-slurmctld: wait in the queue for at most DURATION, such as 10m, then have the job requeued "
                "(default: have it requeued at once)",
                convert=seconds,
            ),
            Option(
                "domain",
                "SUFFIX",
                "prolog-slurmctld: the suffix that makes a node's name in Slurm its name in GSaaS, such as "
                ".example.org",
            ),
            Option(
                "folder",
                "FOLDER",
                "prolog, epilog: where the plug-in looks for environments (default: /run/gsaas/slurm)",
            ),
            Option(
                "grace",
                "DURATION",
                "reconcile: how long a lease has to be without a job before it is released; epilog: how old "
                "what other jobs have left has to be; 0: do it at once (default: 10m)",
                convert=no_time_or,
            ),
            Option(
                "state",
                "FOLDER",
                "reconcile: where it keeps since when leases are without a job (default: /var/lib/gsaas-slurm)",
            ),
        ),
        positional="program",
    ),
    CommandSpec(
        "settings",
        Help(
            "show or change how often GPU hosts report (administrators)",
            usage="gsaas settings [-interval=DURATION|default]",
            example="gsaas settings -interval=5",
        ),
        Handler("settings:settings"),
        options=(
            Option(
                "interval",
                "DURATION|default",
                "time between two reports of GPU hosts, such as 5s; default: as configured on each",
                convert=seconds_or_default,
            ),
            *OUTPUT,
        ),
    ),
)
