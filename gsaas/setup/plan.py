# SPDX-License-Identifier: Apache-2.0
"""The steps that make a controller, a compute host or a GPU host, in their order. It only names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from gsaas.setup import texts
from gsaas.setup.answers import Compute, Controller, GpuHost, written
from gsaas.setup.machine import File, Folder, Link, Step, Unit, User
from gsaas.setup.services import BusAccount, Database, KeystoneEntries
from gsaas.setup.texts import ETC, kept

UNITS = "/etc/systemd/system"
POLKIT = "/etc/polkit-1/rules.d"
SHIPPED = "/opt/gsaas"
"""Where units and samples expect the programs."""


def steps(
    role: str, answers: Controller | Compute | GpuHost, samples: Mapping[str, str], prefix: str
) -> list[Step]:
    """Return what makes a machine of *role*.

    *samples* are the texts of etc/gsaas, by their path below it; *prefix* is the folder of the programs.
    """
    here = {path: text.replace(SHIPPED, prefix) for path, text in samples.items()}
    head = f"# What gsaas-manage setup {role} has been told, or has made up; it reads this first.\n"
    lines = "\n".join(written(dataclasses.asdict(answers)))
    begin: list[Step] = [
        User("gsaas"),
        Folder(ETC, "gsaas"),
        File(kept(role), f"{head}{lines}\n", 0o600),
    ]
    match answers:
        case Controller():
            return begin + _of_controller(answers, here, prefix)
        case Compute():
            return begin + _of_agent("gsaas-rodvr", texts.of_compute(answers), "gsaas", here)
        case GpuHost():
            user = "gsaas-monitor"
            rule = File(f"{POLKIT}/{user}.rules", here[f"polkit/{user}.rules"])
            agent = _of_agent(user, texts.of_gpu_host(answers), user, here)
            return [*begin, User(user), rule, *agent]


def _of_controller(answers: Controller, samples: Mapping[str, str], prefix: str) -> list[Step]:
    text = texts.of_controller(answers)
    settings = File(f"{ETC}/gsaas.conf", text, 0o640, "gsaas")
    # What is shipped is this address; only the line that sets it has it with an equals sign.
    wsgi = samples["gsaas-api-uwsgi.ini"].replace(
        "http-socket = 127.0.0.1:9870", f"http-socket = {answers.listen}"
    )
    server = File(f"{ETC}/gsaas-api-uwsgi.ini", wsgi)
    api, engine, purge, purges, verify, verifies = (
        File(f"{UNITS}/gsaas-{name}", samples[f"systemd/gsaas-{name}"])
        for name in (
            *("api.service", "engine.service", "purge.service", "purge.timer"),
            *("verify.service", "verify.timer"),
        )
    )
    programs = ("gsaas", "gsaas-manage")
    return [
        settings,
        Folder(f"{settings.path}.d", "gsaas"),
        *(server, api, engine, purge, purges, verify, verifies),
        *(Link(f"/usr/local/bin/{name}", f"{prefix}/bin/{name}") for name in programs),
        BusAccount(text, answers),
        Database(text, answers),
        KeystoneEntries(text, answers),
        Unit("gsaas-api", (settings, server, api)),
        Unit("gsaas-engine", (settings, engine)),
        Unit("gsaas-purge.timer", (purges,)),
        Unit("gsaas-verify.timer", (verifies,)),
    ]


def _of_agent(name: str, text: str, group: str, samples: Mapping[str, str]) -> list[Step]:
    settings = File(f"{ETC}/{name}.conf", text, 0o640, group)
    own = Folder(f"{settings.path}.d", group)
    # These alone: where a controller is, gsaas.conf has secrets that an agent must not have.
    command = f"/bin/{name}"
    reads = f"{command} --config-file {settings.path} --config-dir {own.path}"
    shipped = samples[f"systemd/{name}.service"]
    unit = File(f"{UNITS}/{name}.service", shipped.replace(f"{command}\n", f"{reads}\n"))
    return [settings, own, unit, Unit(name, (settings, unit))]
