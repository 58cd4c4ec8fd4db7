# SPDX-License-Identifier: Apache-2.0
"""Check the configuration files: that there are any, what no process reads, and names of what is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata

from oslo_config import cfg

from gsaas import conf as gsaas_conf
from gsaas.checkup.findings import Finding, fail, ok, warn
from gsaas.conf import config_files

PART = "configuration"
NAMED = (
    ("gpgpums", "policy", "gsaas.gpgpums.policies"),
    ("gpgpums", "allowed_policies", "gsaas.gpgpums.policies"),
    ("remoting", "driver", "gsaas.remoting"),
    ("remoting", "cpu_driver", "gsaas.remoting"),
)
"""Options whose values are names of entry points, by section and name, and the group of these."""
ALL = "*"
"""In a list of names: all that are installed."""


def check(conf: cfg.ConfigOpts) -> Iterator[Finding]:
    """Yield what is wrong with the files that *conf* was read from, or which ones they are."""
    files = config_files.files(conf)
    if not files:
        folder = gsaas_conf.FOLDER
        yield warn(
            PART,
            f"there is no configuration file: neither {folder}/gsaas.conf nor one in {folder}/gsaas.conf.d",
            "write one, or name it with --config-file",
        )
        return
    found = [warn(PART, said, "correct the file") for said in gsaas_conf.problems(conf)]
    found += unknown_names(conf, config_files.places(conf))
    yield from found or [ok(PART, f"every option is known in {', '.join(map(str, files))}")]


def unknown_names(conf: cfg.ConfigOpts, places: config_files.Places) -> Iterator[Finding]:
    """Yield a failure for each value of `NAMED` that names no entry point that is installed."""
    for section, option, group in NAMED:
        value = conf[section][option]
        names = {value} - {None} if not isinstance(value, list) else {*value} - {ALL}
        known = metadata.entry_points(group=group).names
        place = places.get((section, option))
        for name in sorted(names - known):
            yield fail(
                PART,
                f"{place + ': ' if place else ''}[{section}]{option} names {name}, which is not installed",
                f"write one of {', '.join(sorted(known))}",
            )
