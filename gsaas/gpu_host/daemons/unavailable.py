# SPDX-License-Identifier: Apache-2.0
"""The error of a systemd that cannot be asked, in a module that needs nothing that talks to systemd."""

from __future__ import annotations


class SystemdUnavailable(Exception):
    """systemd cannot be asked; the message says why."""
