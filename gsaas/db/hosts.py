"""Reading hosts and taking them out of service. They come into being when their agents report."""

from __future__ import annotations

from sqlalchemy import Insert, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.orm import Session, joinedload, selectinload

from gsaas import exceptions
from gsaas.db.models import Gpu, Host

_WHOLE = (selectinload(Host.gpus), joinedload(Host.endpoint))


def get(session: Session, name: str) -> Host:
    """Return one host with its GPUs and its endpoint; raises `NotFound`."""
    host = session.scalar(select(Host).where(Host.name == name).options(*_WHOLE))
    if host is None:
        raise exceptions.NotFound(noun="host", id=name)
    return host


def page(session: Session, *, limit: int, marker: str | None = None) -> list[Host]:
    """Return up to *limit* hosts whose names come after *marker*, by name."""
    query = select(Host).order_by(Host.name).limit(limit).options(*_WHOLE)
    if marker is not None:
        query = query.where(Host.name > marker)
    return list(session.scalars(query))


def set_disabled(session: Session, name: str, disabled: bool, reason: str | None = None) -> Host:
    """Stop or resume offering the GPUs of a host, and say why. Leases that hold them keep them.

    Raises `NotFound`.
    """
    host = get(session, name)
    host.disabled = disabled
    host.disabled_reason = reason if disabled else None
    session.execute(update(Gpu).where(Gpu.host_name == name).values(generation=Gpu.generation + 1))
    session.flush()
    return host


def ensure(session: Session, name: str) -> Host:
    """Return the host of an agent that reports, made now if this is the first word from it.

    The row is held until the transaction ends, so reports of one host take turns.
    """
    host = session.get(Host, name, with_for_update=True, populate_existing=True)
    if host is None:
        session.execute(_insert_unless_there(session, name))
        host = session.get_one(Host, name, with_for_update=True, populate_existing=True)
    return host


def _insert_unless_there(session: Session, name: str) -> Insert:
    """Make a host, unless its other agent spoke first at the same moment.

    Trying and catching the error would do on two of the three databases. On MariaDB, those who come
    too late then share a lock that each of them wants for itself.
    """
    match session.get_bind().dialect.name:
        case "mysql":
            return mysql.insert(Host).values(name=name).on_duplicate_key_update(name=name)
        case "postgresql":
            return postgresql.insert(Host).values(name=name).on_conflict_do_nothing()
        case _:
            return sqlite.insert(Host).values(name=name).on_conflict_do_nothing()
