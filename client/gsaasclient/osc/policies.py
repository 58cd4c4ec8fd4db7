# SPDX-License-Identifier: Apache-2.0
"""`openstack gpu policy …`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from gsaasclient.osc.command import Column, Command, Lister, ShowOne, listed, shown

LISTED = (
    Column("Name", lambda policy: policy.name),
    Column("Default", lambda policy: policy.is_default),
    Column("Allowed", lambda policy: policy.is_allowed),
    Column("Source", lambda policy: policy.source),
    Column("Description", lambda policy: policy.description),
)
SHOWN = (
    Column("name", lambda policy: policy.name),
    Column("default", lambda policy: policy.is_default),
    Column("configured", lambda policy: policy.is_configured),
    Column("allowed", lambda policy: policy.is_allowed),
    Column("source", lambda policy: policy.source),
    Column("description", lambda policy: policy.description),
    Column("about", lambda policy: policy.about),
)


class ListPolicies(Lister):
    """List the policies that choose GPUs, and which of them requests may name"""

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return listed(LISTED, self.gpus.policies())


class ShowPolicy(ShowOne):
    """Show a policy that chooses GPUs, with its advantages and disadvantages"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument("policy", metavar="<policy>", help="policy (name)")
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Sequence[str], Iterable[Any]]:
        return shown(SHOWN, self.gpus.get_policy(parsed_args.policy))


class SetPolicy(Command):
    """Make a policy the default for requests that name none (administrators)"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--default", metavar="<policy>", help="policy (name)")
        which.add_argument(
            "--reset", action="store_true", help="the default of the configuration again"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.gpus.set_default_policy(parsed_args.default)
