# SPDX-License-Identifier: Apache-2.0
"""[bus]: the signatures of messages between controllers and hosts."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("bus", title="Which messages on the message bus are accepted")

OPTS: list[cfg.Opt] = [
    cfg.ListOpt(
        "secrets",
        secret=True,
        default=[],
        help="On controllers only, the same on all of them: secrets from which the key of each agent is derived; "
        "`gsaas-manage bus key` makes one. The first signs, all are accepted, so that they can be replaced one "
        "after the other. Without any, messages are neither signed nor checked, and any host on the bus can report in "
        "the name of another, or send it commands in the name of the engine. An agent that reads them does not start.",
    ),
    cfg.ListOpt(
        "host_keys",
        secret=True,
        default=[],
        help="For an agent only, in its own configuration file (gsaas-monitor.conf, gsaas-rodvr.conf): its key, which "
        "`gsaas-manage bus key HOST --role gpu`, or `--role compute`, prints on a controller. The first signs, all are "
        "accepted. Without any, this agent's messages are not signed, so controllers with `secrets` refuse them, and "
        "it accepts commands and answers of anybody on the bus.",
    ),
    cfg.BoolOpt(
        "enforce",
        default=True,
        help="Refuse messages and answers that are not signed as `secrets` or `host_keys` require. If false, they are "
        "only logged: for the time in which hosts get their keys one after the other.",
    ),
    cfg.FloatOpt(
        "max_age",
        default=300.0,
        min=10.0,
        max=86400.0,
        help="Seconds after which a signed message is refused. The clocks of controllers and hosts may differ by less "
        "than that. At 10, messages that waited for a busy engine are lost; at a day, a copied message is accepted for "
        "a day, by its receiver only.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this section with *conf*."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options of this section by group, for oslo.config's generator of sample files."""
    return {GROUP: OPTS}
