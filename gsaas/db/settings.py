# SPDX-License-Identifier: Apache-2.0
"""Settings that an admin changed while the service ran. They override the configuration files."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from gsaas.db.models import SettingRow
from gsaas.db.upsert import upsert

MONITOR_INTERVAL = "monitor_interval"
"""Seconds between two reports of a GPU host's monitor."""

DEFAULT_POLICY = "default_policy"
"""The scheduling policy for requests that name none."""

VERIFIED = "verified"
"""What `gsaas-manage verify --record` found: {"at": Unix time, "differences": {kind: number}, "not_asked": number}.
No setting, but what it needs is a row."""


def get(session: Session, name: str) -> Any:
    """Return what *name* was set to; None if it is not set."""
    setting = session.get(SettingRow, name, populate_existing=True)
    return setting and setting.value


def put(session: Session, name: str, value: Any, by: str | None = None) -> None:
    """Set *name*, or with None return to the value of the configuration. *by* is the id of a user."""
    if value is None:
        session.execute(delete(SettingRow).where(SettingRow.name == name))
    else:
        upsert(session, SettingRow, [{"name": name, "value": value, "updated_by": by}])
