# SPDX-License-Identifier: Apache-2.0
"""What python-openstackclient reads of its plug-ins: the names of the API, its option, and its client.

The module is imported by every `openstack` command, so it imports nothing that takes time.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # what `typing` would say, without loading it
if TYPE_CHECKING:
    from argparse import ArgumentParser
    from typing import Any

    from osc_lib.clientmanager import ClientManager

    from gsaasclient.sdk import Proxy

API_NAME = "gpu_scheduling"
API_VERSION_OPTION = "os_gpu_scheduling_api_version"
API_VERSIONS = ("1",)
DEFAULT_API_VERSION = "1"


def make_client(instance: ClientManager) -> Proxy:
    """Return `gpu_scheduling` of the connection that all commands share."""
    from gsaasclient import sdk

    connection: Any = instance.sdk_connection  # whose class does not know of the attribute
    sdk.add_service(connection)
    proxy: Proxy = connection.gpu_scheduling
    return proxy


def build_option_parser(parser: ArgumentParser) -> ArgumentParser:
    """Add the option for the version of the API to those of the program."""
    parser.add_argument(
        "--os-gpu-scheduling-api-version",
        metavar="<gpu-scheduling-api-version>",
        default=os.environ.get("OS_GPU_SCHEDULING_API_VERSION"),
        help="version of the GPU scheduling API: 1, which stands for the newest microversion that both sides know, "
        "or a microversion such as 1.2 (Env: OS_GPU_SCHEDULING_API_VERSION)",
    )
    return parser


def check_api_version(version: str) -> bool:
    """Return whether *version* is one of the API's; False makes the program warn. The SDK checks microversions."""
    major, _, minor = version.partition(".")
    return major in API_VERSIONS and (not minor or minor.isdecimal())
