# SPDX-License-Identifier: Apache-2.0
"""Check that the row of each GPU counts what leases claim of the GPU and reservations keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection

from gsaas.checkup.findings import Finding, fail, ok
from gsaas.db import recount

PART = "claims"
NAMED = 3
"""GPUs that the finding names."""


def check(connection: Connection) -> Iterator[Finding]:
    """Compare both; *connection* has to see one snapshot."""
    yield compare(recount.miscounted(connection))


def compare(found: Sequence[recount.Miscounted]) -> Finding:
    """Return the finding for the GPUs whose rows are wrong."""
    if not found:
        return ok(PART, "what is counted of each GPU is what leases claim and reservations keep")
    named = ", and ".join(str(one) for one in found[:NAMED])
    more = f", and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return fail(
        PART,
        f"the counts of {len(found)} GPUs are wrong: {named}{more}",
        "gsaas-manage db recount counts again; please report it with the logs: it is a defect of GSaaS",
    )
