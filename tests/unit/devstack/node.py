# SPDX-License-Identifier: Apache-2.0
"""A DevStack node that does nothing but call the plug-in, with stand-ins for DevStack's own functions."""

from __future__ import annotations

import configparser
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parents[2]
PLUGIN = SOURCE / "devstack"
PROGRAMS = Path(sys.executable).parent

STACK = (
    "stack pre-install",
    "stack install",
    "stack post-config",
    "stack extra",
    "stack test-config",
)
ADDRESS = "127.0.0.1"
NOVA_CONF = """\
[notifications]
notification_format = unversioned
[oslo_messaging_notifications]
driver = messagingv2
transport_url = rabbit://stackrabbit:secret@controller:5672/
"""
NOVA_CELL_CONF = (
    "[DEFAULT]\ntransport_url = rabbit://stackrabbit:secret@controller:5672/nova_cell1\n"
)

CONTROLLER = ("mysql", "rabbit", "key", "n-api", "n-cond", "n-sch")
COMPUTE_HOST = ("n-cpu",)
GPU_HOST = ("gsaas-monitor",)


@dataclass
class Node:
    """One node; *root* is the folder that it uses instead of /etc, /opt/stack and so on."""

    root: Path
    services: tuple[str, ...]
    """What local.conf enables."""
    local: str = ""
    """The rest of local.conf."""

    def __post_init__(self) -> None:
        for name in ("bin", "commands", "sites", "systemd", "nova"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        self._program("uwsgi", "#!/bin/true\n")
        self.nova_conf.write_text(NOVA_CONF)
        if "n-cond" in self.services:
            self.nova_cell_conf.write_text(NOVA_CELL_CONF)

    @property
    def conf(self) -> Path:
        """Of the controllers."""
        return self.root / "etc" / "gsaas.conf"

    @property
    def rodvr_conf(self) -> Path:
        return self.root / "etc" / "gsaas-rodvr.conf"

    @property
    def monitor_conf(self) -> Path:
        return self.root / "etc" / "gsaas-monitor.conf"

    @property
    def nova_conf(self) -> Path:
        return self.root / "nova" / "nova.conf"

    @property
    def nova_cell_conf(self) -> Path:
        """Of the conductor of the only cell."""
        return self.root / "nova" / "nova_cell1.conf"

    @property
    def nova_policy(self) -> Path:
        return self.root / "nova" / "policy.yaml"

    @property
    def programs(self) -> Path:
        """Where the environment that DevStack's services share has its programs."""
        return self.root / "venv" / "bin"

    def unit(self, service: str) -> Path:
        """What is added to the unit that DevStack writes."""
        return self.root / "systemd" / f"devstack@{service}.service.d" / "gsaas.conf"

    def run(self, *phases: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Do what stack.sh, unstack.sh or clean.sh does: one shell, the settings, then phase after phase."""
        script = [
            "set -o errexit -o nounset",
            *(f"{name}={shlex.quote(value)}" for name, value in self._variables().items()),
            f"source {HERE}/standins.sh",
            self.local,
            f"source {PLUGIN}/override-defaults",
            f"source {PLUGIN}/settings",
            *(f"source {PLUGIN}/plugin.sh {phase}" for phase in phases),
        ]
        return subprocess.run(
            ["bash", "-c", "\n".join(script)],
            check=check,
            capture_output=True,
            text=True,
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "JOURNAL": str(self._journal),
            },
        )

    def did(self, verb: str) -> list[str]:
        """Return the arguments of each call of the function or program *verb*, in order."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        calls = [line.partition(" ") for line in lines]
        return [rest for called, _, rest in calls if called == verb]

    def forget(self) -> None:
        """Begin a new journal."""
        self._journal.unlink(missing_ok=True)

    def written(self, path: Path) -> dict[str, dict[str, str]]:
        """An INI file: section -> option -> value."""
        parser = configparser.RawConfigParser(default_section="")
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(path.read_text())
        return {name: dict(parser[name]) for name in parser.sections()}

    def files(self) -> set[str]:
        """Return every file and link of the node, without programs and Nova's files."""
        return {
            str(path.relative_to(self.root))
            for path in self.root.rglob("*")
            if not path.is_dir()
            and path.relative_to(self.root).parts[0] not in ("bin", "nova", "venv")
        } - {"journal"}

    @property
    def _journal(self) -> Path:
        return self.root / "journal"

    def _program(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def _variables(self) -> dict[str, str]:
        return {
            "APACHE_SITES": str(self.root / "sites"),
            "BUS": "rabbit://stackrabbit:secret@controller:5672/",
            "DATABASE": "mysql+pymysql://root:secret@127.0.0.1",
            "DATABASE_QUERY": "?charset=utf8&plugin=dbcounter",
            "DATABASE_TYPE": "mysql",
            "DEST": str(self.root),
            "ENABLED_SERVICES": ",".join(self.services),
            "ENABLE_DEBUG_LOG_LEVEL": "True",
            "GSAAS_COMMANDS_DIR": str(self.root / "commands"),
            "GSAAS_CONF_DIR": str(self.root / "etc"),
            "GSAAS_HOST": "node-1",
            "GSAAS_LOG_DIR": str(self.root / "log"),
            "GSAAS_POLKIT_DIR": str(self.root / "polkit"),
            "GSAAS_RUN_DIR": str(self.root / "run"),
            "HOST_IP": ADDRESS,
            "KEYSTONE_SERVICE_URI": "http://controller/identity",
            "NOVA_CONF": str(self.nova_conf),
            "NOVA_CONF_DIR": str(self.nova_conf.parent),
            "NOVA_NUM_CELLS": "1",
            "REGION_NAME": "RegionOne",
            "SERVICE_HOST": "controller",
            "SERVICE_PASSWORD": "secret",
            "SERVICE_PROTOCOL": "http",
            "SERVICE_TIMEOUT": "60",
            "SSL_BUNDLE_FILE": str(self.root / "ca-bundle.pem"),
            "STACK_USER": "root" if os.geteuid() == 0 else str(os.geteuid()),
            "SYSTEMD_DIR": str(self.root / "systemd"),
        }
