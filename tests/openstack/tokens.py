# SPDX-License-Identifier: Apache-2.0
"""Tokens that have ended: Keystone itself is asked to write them, as nobody can wait for a day."""

from __future__ import annotations

from tests.openstack.bed import commands, keystone, venv

SCRIPT = """
import datetime, sys
import keystone.conf
from keystone.token import token_formatters

configuration, token = sys.argv[1:]
keystone.conf.configure()
keystone.conf.CONF([], default_config_files=[configuration])
formatter = token_formatters.TokenFormatter()
user, methods, audit, _, _, project, *_ = formatter.validate_token(token)[:7]
ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=1)
end = ago.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
kind = token_formatters.ProjectScopedPayload
print(formatter.create_token(user, end, audit, kind, methods, project_id=project))
"""


def expired(token: str) -> str:
    """A token like *token*, for a project, that ended a minute ago."""
    written = commands.run(venv.program("python"), "-c", SCRIPT, keystone.CONFIGURATION, token)
    return written.strip()
