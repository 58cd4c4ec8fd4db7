# SPDX-License-Identifier: Apache-2.0
"""The commands of `gsaas` and their options, in the order of the help.

Each command names its handler as `module:function` of `gsaasclient.cli`; the module is imported when the command runs.
"""

from __future__ import annotations

from gsaasclient.cli.commands.leases import LEASES
from gsaasclient.cli.commands.requests import REQUESTS
from gsaasclient.cli.commands.resources import RESOURCES
from gsaasclient.cli.commands.services import SERVICES

COMMANDS = {command.name: command for command in (*LEASES, *REQUESTS, *RESOURCES, *SERVICES)}
