# SPDX-License-Identifier: Apache-2.0
"""Configuration: one module for each option group. Options are registered on a new `ConfigOpts`, never the global one.

conf = gsaas.conf.load(["--config-file", "/etc/gsaas/gsaas.conf"])
conf.gpgpums.policy
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg, types
from oslo_log import log

from gsaas.conf import (
    agent,
    api,
    bus,
    cloudinit,
    config_files,
    daemons,
    engine,
    gpgpums,
    gpu_network,
    grants,
    leases,
    monitor,
    notifications,
    nova,
    plain_servers,
    queue,
    quotas,
    remoting,
    rodvr,
    standalone,
    usage,
)

MODULES = (
    agent,
    api,
    bus,
    cloudinit,
    daemons,
    engine,
    gpgpums,
    gpu_network,
    grants,
    leases,
    monitor,
    nova,
    notifications,
    plain_servers,
    queue,
    quotas,
    remoting,
    rodvr,
    standalone,
    usage,
)
QUIET = ("alembic=WARN", "pyroute2=INFO", "hpack=INFO")
"""Log levels of libraries, beside oslo.log's own: with `debug`, these would log every message that they encode."""
LOG = log.getLogger(__name__)

FOLDER = Path("/etc/gsaas")
"""Where configuration files are found by default."""


def load(
    args: Sequence[str] = (),
    files: Sequence[str] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
    cli: Sequence[cfg.Opt] = (),
) -> cfg.ConfigOpts:
    """Read *args*, a command line, and *files* (None: those in `FOLDER`) into a new `ConfigOpts`, and return it.

    *prog* is the name of the process, which may have a file of its own in `FOLDER`; *description* is the text of its
    `--help`; *cli* are options that only its command line has.

    Raises `oslo_config.cfg.Error` or `ValueError` for an option that does not exist or a value that is not allowed.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), *QUIET])
    for module in MODULES:
        # A group object of its own for each ConfigOpts: oslo.config stores a group's options in the object, so that
        # using the module's would share them among all ConfigOpts of the process.
        group = module.GROUP
        conf.register_group(cfg.OptGroup(group.name, title=group.title, help=group.help))
        module.register_opts(conf)
    conf.register_cli_opts(cli)
    conf(
        list(args),
        project="gsaas",
        prog=prog,
        description=description,
        default_config_files=_default_paths(prog, "conf") if files is None else list(files),
        default_config_dirs=_default_paths(prog, "conf.d"),
    )
    _read_every_value(conf)
    return conf


def problems(conf: cfg.ConfigOpts) -> list[str]:
    """Return a sentence for each unknown or deprecated option in the files that *conf* was read from, with its line."""
    own = {
        group.name: options for module in MODULES for group, options in module.list_opts().items()
    }
    return config_files.problems(conf, own)


def warn_of_problems(conf: cfg.ConfigOpts) -> None:
    """Log `problems`. Logging has to be set up before."""
    for problem in problems(conf):
        LOG.warning("the configuration: %s", problem)


def _default_paths(prog: str | None, ending: str) -> list[str]:
    """Return the existing files (or folders) in `FOLDER` with this *ending*: that of all processes and that of *prog*.

    Without them, oslo.config would search the caller's home first. If an operator keeps a draft there, `gsaas-manage`
    would read the draft while the services read `FOLDER`.
    """
    paths = [FOLDER / f"{name}.{ending}" for name in ("gsaas", prog) if name]
    return [str(path) for path in paths if path.exists()]


def _read_every_value(conf: cfg.ConfigOpts) -> None:
    """Read every option, so that values that are not allowed raise now, all of them, and not at their first use."""
    wrong = []
    for module in MODULES:
        for group, options in module.list_opts().items():
            section = conf if group.name == "DEFAULT" else conf[group.name]
            for option in options:
                try:
                    section[option.dest]
                except (cfg.ConfigFileValueError, ValueError) as error:
                    wrong.append((group.name, option, str(error)))
    if wrong:
        where = config_files.places(conf)
        raise cfg.Error("; ".join(_sentence(where, *each) for each in wrong))


def _sentence(places: config_files.Places, section: str, option: cfg.Opt, error: str) -> str:
    place = places.get((section, option.dest))
    # oslo.config puts the place in front, as Python writes such a value.
    said = error.partition(" is not valid: ")[2] or error
    unread = said.startswith(("invalid literal for int()", "could not convert string to float"))
    if unread and isinstance(option.type, types.Number):
        said = f"{said.rpartition(': ')[2]} is not {_number(option.type)}"
    return f"{place + ': ' if place else ''}[{section}]{option.name}: {said}"


def _number(kind: types.Number) -> str:
    bounds = [
        f"{words} {bound}"
        for words, bound in (("at least", kind.min), ("at most", kind.max))
        if bound is not None
    ]
    number = "a number" if kind.num_type is float else "a whole number"
    return number + (f" of {' and '.join(bounds)}" if bounds else "")
