# SPDX-License-Identifier: Apache-2.0
"""The processes of a controller, with a cloud that has no servers: the leases of the fleet belong to programs.

python -m bench.fleets.controllers --config-file FILE       gsaas-engine
gunicorn bench.fleets.controllers:api()                     gsaas-api, configured by GSAAS_CONFIG_FILES
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from gsaas import exceptions
from gsaas.cloud import base


class NoServers(base.Cloud):
    """A cloud that makes no servers, and knows at once that none has changed."""

    def check(self, context: Any, request: Any) -> list[str]:
        raise exceptions.ServerRefused(reason="the fleet has no servers")

    def compute_hosts(self) -> Sequence[str]:
        return []

    def create(self, *arguments: Any, **more: Any) -> base.Server:
        raise exceptions.ServerRefused(reason="the fleet has no servers")

    def find(self, owner: base.Owner) -> None:
        return None

    def delete(self, owner: base.Owner) -> None:
        return

    def server_hosts(self) -> dict[str, str]:
        return {}

    def server_changes(self, since: Any) -> list[base.ServerChange]:
        return []


def api() -> Any:
    """Return the API as a WSGI application."""
    vars(base)["load"] = lambda *_: NoServers()
    from gsaas.wsgi.api import application

    return application


if __name__ == "__main__":
    vars(base)["load"] = lambda *_: NoServers()
    from gsaas.cli import engine

    sys.exit(engine.main(sys.argv[1:]))
