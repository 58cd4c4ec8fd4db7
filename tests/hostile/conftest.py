# SPDX-License-Identifier: Apache-2.0
"""The lab of the datapath and the database servers, as other tests have them."""

from __future__ import annotations

from tests.kernel.rodvr import conftest as rodvr
from tests.services import conftest as services

lab, make_endpoint, endpoint = rodvr.lab, rodvr.make_endpoint, rodvr.endpoint
sqlite_server, mariadb_server = services.sqlite_server, services.mariadb_server
postgresql_server, server = services.postgresql_server, services.server
migrated, database = services.migrated, services.database
