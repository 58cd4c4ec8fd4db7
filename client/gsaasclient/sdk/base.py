# SPDX-License-Identifier: Apache-2.0
"""What the resources have in common.

Names of the SDK that begin with an underscore are used here as its own services use them: in subclasses of `Resource`
and `Proxy`, whose authors they are for.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Self
from urllib.parse import quote

from keystoneauth1.adapter import Adapter
from openstack import resource

from gsaasclient import lease_fields

NEWEST = max(
    ("1.11", *(field.since for field in lease_fields.FIELDS)), key=lease_fields.version_key
)
"""The newest microversion that the resources know.

An API that supports only older ones gets requests for its newest.
"""


class Resource(resource.Resource):
    """A resource of the API."""

    _max_microversion = NEWEST

    @property
    def path(self) -> str:
        """Its URL without the endpoint; a name may have any character."""
        return f"{self.base_path}/{quote(self.id, safe='')}"

    def fetch(self, session: Adapter, requires_id: bool = True, *args: Any, **more: Any) -> Self:
        """Read it from the API, and return it."""
        if requires_id:
            more["base_path"] = self.path.replace("%", "%%")  # the SDK fills in what follows a %
        return super().fetch(session, False, *args, **more)


class ListedForAdmins(Resource):
    """A resource of which the API's list is missing for callers who may see only its totals."""

    @classmethod
    def list(cls, session: Adapter, *args: Any, **params: Any) -> Generator[Self, None, None]:
        """Yield each resource, page by page; nothing for callers to whom the API shows none."""
        try:
            yield from super().list(session, *args, **params)
        except KeyError as error:
            if error.args != (cls.resources_key,):
                raise


class InService(ListedForAdmins):
    """A GPU or host, which an administrator takes out of service."""

    is_disabled = resource.Body("disabled", type=bool)
    """Whether new leases do not get it."""
    disabled_reason = resource.Body("disabled_reason")

    def set_disabled(
        self, session: Adapter, disabled: bool, reason: str | None = None, **more: Any
    ) -> Self:
        """Take it out of service, or return it to service; *reason* is for other operators, *more* are other fields."""
        change: dict[str, Any] = {"disabled": disabled, **more}
        if reason is not None:
            change["disabled_reason"] = reason
        response = session.patch(
            self.path,
            json={self.resource_key: change},
            microversion=self._get_microversion(session),
        )
        self._translate_response(response)
        return self
