# SPDX-License-Identifier: Apache-2.0
"""Security events in the form of CADF (DMTF's DSP0262), as keystonemiddleware's audit and Keystone send them.

    audit.gsaas.authenticate   a request without a valid token
    audit.gsaas.access         access that the rules refuse, or to another project's lease
    audit.gsaas.grant          a grant that was refused
    audit.gsaas.change         a change by an administrator

No event contains a token or a grant. Types of resources begin as keystonemiddleware's do: `service/`, and the service's
type.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from pycadf import cadftaxonomy, cadftype, event, host, reason, resource

AUTHENTICATE, ACCESS, GRANT, CHANGE = (
    f"audit.gsaas.{kind}" for kind in ("authenticate", "access", "grant", "change")
)

SERVICE = "service/gpu-scheduling"
LEASE = f"{SERVICE}/leases/lease"
UNKNOWN = cadftaxonomy.UNKNOWN
MAX_TEXT = 255
"""Characters of what a caller chooses freely, such as the name of its program."""


@dataclass(frozen=True)
class SecurityEvent:
    """One event, before it is written as CADF says."""

    event_type: str
    action: str
    """One of CADF's, such as `read` or `disable`."""
    succeeded: bool
    code: str | None
    """The code of the error, such as `gsaas.forbidden`; None for a success."""
    address: str | None
    """The address of the initiator: for a grant, of the consumer that presented it."""
    agent: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    request_id: str | None = None
    target_type: str = SERVICE
    target_id: str | None = None
    status: int | None = None
    """The HTTP status of the answer; None if the event did not come by HTTP."""
    path: str | None = None


def payload(happened: SecurityEvent, observer: str) -> dict[str, Any]:
    """Return *happened* as CADF's JSON; *observer* is the publisher that saw it."""
    built: dict[str, Any] = _event(happened, observer).as_dict()
    return built


def _event(happened: SecurityEvent, observer: str) -> Any:
    with warnings.catch_warnings():
        # pycadf warns of every id that is no UUID, and ours are often names of hosts and GPUs.
        warnings.simplefilter("ignore")
        initiator = resource.Resource(
            id=happened.user_id or UNKNOWN,
            typeURI=cadftaxonomy.ACCOUNT_USER,
            host=host.Host(address=happened.address or UNKNOWN, agent=_clipped(happened.agent)),
        )
        # keystonemiddleware adds the same attributes, which CADF allows.
        for name in ("project_id", "request_id"):
            if (value := getattr(happened, name)) is not None:
                setattr(initiator, name, value)
        target = resource.Resource(
            id=_clipped(happened.target_id) or UNKNOWN, typeURI=happened.target_type
        )
        outcome = cadftaxonomy.OUTCOME_SUCCESS
        if not happened.succeeded:
            outcome = cadftaxonomy.OUTCOME_FAILURE
        built = event.Event(
            eventType=cadftype.EVENTTYPE_ACTIVITY,
            action=happened.action,
            outcome=outcome,
            initiator=initiator,
            target=target,
            observer=resource.Resource(id=observer, typeURI=SERVICE),
            reason=_reason(happened),
        )
    if happened.path is not None:
        built.requestPath = _clipped(happened.path)
    return built


def _reason(happened: SecurityEvent) -> Any:
    """Return the reason: the HTTP status where there is one, as in keystonemiddleware's events, and our own code."""
    if happened.status is None:
        return reason.Reason(reasonType="gsaas", reasonCode=happened.code)
    ours = {"policyType": "gsaas", "policyId": happened.code} if happened.code else {}
    return reason.Reason(reasonType="HTTP", reasonCode=str(happened.status), **ours)


def _clipped(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT]
