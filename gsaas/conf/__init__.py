"""Configuration: one module per option group, registered on a `ConfigOpts` that is passed around, never global.

conf = gsaas.conf.load(["--config-file", "/etc/gsaas/gsaas.conf"])
conf.gpgpums.policy
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log

from gsaas.conf import (
    agent,
    api,
    cloudinit,
    daemons,
    engine,
    gpgpums,
    grants,
    monitor,
    nova,
    queue,
    quotas,
    remoting,
    rodvr,
    standalone,
)

MODULES = (
    agent,
    api,
    cloudinit,
    daemons,
    engine,
    gpgpums,
    grants,
    monitor,
    nova,
    queue,
    quotas,
    remoting,
    rodvr,
    standalone,
)
FOLDER = Path("/etc/gsaas")


def load(
    args: Sequence[str] = (),
    files: Sequence[str] | None = None,
    *,
    prog: str | None = None,
    description: str | None = None,
    cli: Sequence[cfg.Opt] = (),
) -> cfg.ConfigOpts:
    """Read *args* (command line) and *files* (those in `FOLDER` when None) into a new `ConfigOpts`.

    *prog* is the name of the process, which may have a file of its own, *description* what its help says, and
    *cli* options of its own, for the command line alone.

    Raises `oslo_config.cfg.Error` for options or values that do not exist.
    """
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    log.set_defaults(default_log_levels=[*log.get_default_log_levels(), "alembic=WARN"])
    conf.register_opts(db_options.database_opts, "database")
    for module in MODULES:
        # oslo.config would share the options of a module's group among all ConfigOpts of the process.
        group = module.GROUP
        conf.register_group(cfg.OptGroup(group.name, title=group.title, help=group.help))
        module.register_opts(conf)
    conf.register_cli_opts(cli)
    conf(
        list(args),
        project="gsaas",
        prog=prog,
        description=description,
        default_config_files=_usual(prog, "conf") if files is None else list(files),
        default_config_dirs=_usual(prog, "conf.d"),
    )
    _read_every_value(conf)
    return conf


def _usual(prog: str | None, ending: str) -> list[str]:
    """What there is in `FOLDER` for everybody, and for *prog*.

    oslo.config would look in the caller's home first: an operator who keeps a draft there would have `gsaas-manage`
    read that, while the services read the other.
    """
    paths = [FOLDER / f"{name}.{ending}" for name in ("gsaas", prog) if name]
    return [str(path) for path in paths if path.exists()]


def _read_every_value(conf: cfg.ConfigOpts) -> None:
    """Have a value that cannot be one be found now, and not by whoever happens to need it first."""
    for module in MODULES:
        for group, options in module.list_opts().items():
            section = conf if group.name == "DEFAULT" else conf[group.name]
            for option in options:
                section[option.dest]
