# SPDX-License-Identifier: Apache-2.0
"""Making SQLAlchemy's engine for a database, from the configuration or from a URL."""

from __future__ import annotations

import sqlalchemy
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_db.sqlalchemy import engines

from gsaas.db import outages as outages  # oslo.db is taught by its import
from gsaas.db import pooling, sqlite
from gsaas.db import storage as storage  # likewise


def section(conf: cfg.ConfigOpts) -> cfg.ConfigOpts.GroupAttr:
    """Return the section `[database]`: oslo.db's options, which agents lack, because they use no database."""
    conf.register_opts(db_options.database_opts, "database")
    options: cfg.ConfigOpts.GroupAttr = conf.database
    return options


def connect(conf: cfg.ConfigOpts, **overrides: object) -> sqlalchemy.Engine:
    """Connect as `[database]` says; raises `oslo_db.exception.DBError` when it cannot.

    *overrides* are engine options of oslo.db; they replace those of *conf*.
    """
    options = section(conf)
    configured = {
        "connection_recycle_time": options.connection_recycle_time,
        "max_pool_size": options.max_pool_size,
        "max_overflow": options.max_overflow,
        "pool_timeout": options.pool_timeout,
        "mysql_sql_mode": options.mysql_sql_mode,
        "mysql_wsrep_sync_wait": options.mysql_wsrep_sync_wait,
        "max_retries": options.max_retries,
        "retry_interval": options.retry_interval,
    }
    return open_url(options.connection, **(configured | overrides))


def open_url(url: str, **engine_options: object) -> sqlalchemy.Engine:
    """Connect to *url*, an SQLAlchemy database URL. *engine_options* are oslo.db's.

    Raises `sqlalchemy.exc.ArgumentError` if *url* is not such a URL, and `oslo_db.exception.DBError` if the database
    does not answer.
    """
    parsed = sqlalchemy.make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database:
        return sqlite.create_engine(parsed)
    options = {"mysql_sql_mode": "TRADITIONAL", **engine_options}
    complete = _complete(parsed).render_as_string(hide_password=False)
    engine: sqlalchemy.Engine = engines.create_engine(
        complete, sqlite_fk=True, thread_checkin=False, **options
    )
    return engine


def _complete(url: sqlalchemy.URL) -> sqlalchemy.URL:
    """Return *url* with the options that GSaaS needs: on MariaDB and MySQL, the character set of all of Unicode.

    oslo.db would choose `utf8`, which these two interpret as the three-byte subset, and it recognises both only by the
    name `mysql`.
    """
    if url.get_backend_name() == "sqlite":  # in memory
        return url
    if url.get_backend_name() in ("mysql", "mariadb"):
        url = url.set(drivername=f"mysql+{url.get_driver_name()}")
        url = url.update_query_dict({"charset": "utf8mb4", **url.query})
    return pooling.pooled(url)
