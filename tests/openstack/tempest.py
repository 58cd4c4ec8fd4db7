# SPDX-License-Identifier: Apache-2.0
"""Tempest with GSaaS's plug-in: installed in an environment of its own, and run against the test bed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from openstack.connection import Connection

from tests.openstack.bed import commands, files, gsaas, settings, venv
from tests.openstack.bed.once import once

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tempest"
PACKAGE = "gsaas_tempest_plugin"
LOCK = Path(__file__).with_name("tempest.lock")
VENV = settings.CACHE / "tempest"

RESULTS = """
import json, sys
import subunit, testtools

def note(test):
    reason = test["details"].get("reason")
    text = "".join(detail.as_text() for detail in test["details"].values())
    print(json.dumps({
        "id": test["id"],
        "status": test["status"],
        "said": reason.as_text() if reason else text,
    }))

results = testtools.StreamToDict(note)
results.startTestRun()
subunit.ByteStreamToStreamResult(sys.stdin.buffer, non_subunit_name="stdout").run(results)
results.stopTestRun()
"""
"""Run by the environment's own Python: reads what stestr has stored, and prints one line for each test."""


@dataclass(frozen=True)
class Result:
    """What stestr has stored of one test, or of the fixture of a class."""

    status: str
    said: str
    """Why it was skipped, or what it and its log say."""


def install() -> None:
    """Install the releases of `tempest.lock`, and the plug-in as it is in this source tree."""
    made_from = files.digest([LOCK, PLUGIN / "setup.cfg"], str(PLUGIN))
    once(VENV.with_name("tempest.made-from"), made_from, _install)


def _install() -> None:
    environment = dict(os.environ)
    commands.run(venv.PYTHON, "-m", "venv", "--clear", "--without-pip", VENV, env=environment)
    uv = (venv.program("uv"), "pip")
    python = ("-q", "--python", program("python"))
    commands.run(*uv, "sync", *python, LOCK, env=environment)
    commands.run(*uv, "install", *python, "--no-deps", "-e", PLUGIN, env=environment)


def program(name: str) -> Path:
    """Return the path of a program of the environment."""
    return VENV / "bin" / name


def expected() -> set[str]:
    """Return the full names of all tests, as the source of the plug-in has them."""
    return {name for path in PLUGIN.rglob("test_*.py") for name in _tests(path)}


def _tests(path: Path) -> Iterator[str]:
    module = ".".join(path.relative_to(PLUGIN).with_suffix("").parts)
    for group in ast.parse(path.read_text()).body:
        if isinstance(group, ast.ClassDef):
            for function in group.body:
                if isinstance(function, ast.FunctionDef) and function.name.startswith("test_"):
                    yield f"{module}.{group.name}.{function.name}"


class Workspace:
    """A workspace of `tempest init` in *folder*, configured for the bed."""

    def __init__(self, folder: Path, admin: Connection, **more: dict[str, Any]) -> None:
        self._folder = folder
        self._tempest("init", str(folder))
        files.write_ini(
            folder / "etc" / "tempest.conf", files.merge(_configuration(folder, admin), more)
        )

    def run(self, *words: str) -> dict[str, Result]:
        """Run the tests of the plug-in with *words*; return the results by name."""
        ran = self._tempest("run", "--regex", rf"^{PACKAGE}\.", *words, check=False)
        stored = subprocess.run(
            [program("stestr"), "last", "--subunit"],
            cwd=self._folder,
            capture_output=True,
            check=False,
        )
        read = subprocess.run(
            [program("python"), "-c", RESULTS], input=stored.stdout, capture_output=True, check=True
        )
        rows = [json.loads(line) for line in read.stdout.splitlines()]
        assert rows, ran.stdout + ran.stderr
        return {row["id"].partition("[")[0]: Result(row["status"], row["said"]) for row in rows}

    def _tempest(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program("tempest"), *words],
            cwd=self._folder if self._folder.exists() else None,
            env={
                "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}",
                "HOME": str(self._folder.parent),
                "LANG": "C.UTF-8",
            },
            capture_output=True,
            text=True,
            check=check,
        )


def accounts(path: Path) -> None:
    """Write the accounts of the bed's tenants and of its administrator, as `tempest account-generator` does."""
    tenants = [
        {
            "username": name,
            "password": settings.password(name),
            "project_name": name,
            "domain_name": "Default",
            "roles": ["member"],
            "resources": {"network": settings.NETWORK},
        }
        for name in settings.TENANTS
    ]
    admin = {
        "username": "admin",
        "password": settings.password("admin"),
        "project_name": "admin",
        "domain_name": "Default",
        "types": ["admin"],
        "roles": ["admin"],
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump([*tenants, admin]), encoding="utf-8")


def _configuration(folder: Path, admin: Connection) -> dict[str, dict[str, Any]]:
    image = admin.image.find_image(settings.IMAGE).id
    flavor = admin.compute.find_flavor(settings.FLAVOR).id
    return {
        "DEFAULT": {"log_dir": folder / "logs", "log_file": "tempest.log"},
        "oslo_concurrency": {"lock_path": folder / "locks"},
        "auth": {
            "use_dynamic_credentials": True,
            "admin_username": "admin",
            "admin_password": settings.password("admin"),
            "admin_project_name": "admin",
            "admin_domain_name": "Default",
        },
        "identity": {"uri_v3": settings.KEYSTONE_URL, "region": settings.REGION},
        "compute": {
            "image_ref": image,
            "image_ref_alt": image,
            "flavor_ref": flavor,
            "flavor_ref_alt": flavor,
        },
        "service-clients": {"http_timeout": 300},  # on a busy machine Nova takes long to answer
        "network": {"project_network_cidr": "10.78.0.0/16"},
        "validation": {"run_validation": False},
        "service_available": {"cinder": False, "swift": False, "gsaas": True},
        "gpu_scheduling": {
            "build_timeout": 600,
            "build_interval": 2,  # for each look at a console, Nova asks the host
            "cgpu_quota": gsaas.CGPU_QUOTA,
            "fill_cloud": True,
            "guest_reports": True,
            "guest_timeout": 600,
        },
    }
