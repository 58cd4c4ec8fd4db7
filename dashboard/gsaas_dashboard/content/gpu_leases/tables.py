# SPDX-License-Identifier: Apache-2.0
"""The table of a project's leases."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import exceptions, tables

from gsaas_dashboard import cloud
from gsaas_dashboard.presentation import leases, quantities
from gsaasclient.sdk.leases import Lease

UNKNOWN = "UNKNOWN"
"""Instead of a status while the API is away; the row goes on asking."""


class LaunchLease(tables.LinkAction):
    """Opens the page that launches."""

    name = "launch"
    verbose_name = _("Launch GPU Lease")
    url = "horizon:project:gpu_leases:launch"
    classes = ("ajax-modal",)
    icon = "cloud-upload"


class ReleaseLease(tables.DeleteAction):
    """Ends leases, after a question."""

    help_text = _("Its VM is deleted, and its GPUs are given to others.")

    @staticmethod
    def action_present(count: int) -> Any:
        return ngettext_lazy("Release GPU Lease", "Release GPU Leases", count)

    @staticmethod
    def action_past(count: int) -> Any:
        return ngettext_lazy("Started to release GPU Lease", "Started to release GPU Leases", count)

    def allowed(self, request: HttpRequest, lease: Lease | None = None) -> bool:
        return lease is None or leases.can_be_released(lease)

    def delete(self, request: HttpRequest, obj_id: str) -> None:
        cloud.act(
            request, _("The lease cannot be released"), lambda gpus: gpus.delete_lease(obj_id)
        )

    def get_success_url(self, request: HttpRequest | None = None) -> str:
        return str(reverse("horizon:project:gpu_leases:index"))


class Filter(tables.FilterAction):
    """Searches the names of the leases on the page."""

    def filter(self, table: Any, rows: list[Lease], text: str) -> list[Lease]:
        return [lease for lease in rows if text.lower() in lease.name.lower()]


class FreshRow(tables.Row):
    """A row that is updated until its lease has a status that stays."""

    ajax = True

    def get_data(self, request: HttpRequest, lease_id: str) -> Lease:
        try:
            return cloud.do(request, lambda gpus: gpus.get_lease(lease_id))
        except exceptions.NotAuthorized:
            raise
        except exceptions.HorizonException:
            return Lease.existing(id=lease_id, name=lease_id, status=UNKNOWN)


class Leases(tables.DataTable):
    """One row for each lease."""

    name = tables.WrappingColumn(
        "name", verbose_name=_("Name"), link="horizon:project:gpu_leases:detail"
    )
    shown_status = tables.Column(leases.status, verbose_name=_("State"))
    asked = tables.Column(lambda lease: leases.asked(lease.cgpus), verbose_name=_("cGPUs"))
    addresses = tables.Column(
        lambda lease: ", ".join(device.address for device in leases.devices(lease)) or "-",
        verbose_name=_("Addresses"),
    )
    created = tables.Column(
        lambda lease: quantities.moment(lease.created_at), verbose_name=_("Requested")
    )
    status = tables.Column(
        "status",
        verbose_name=_("Status"),
        hidden=True,
        status=True,
        status_choices=(
            ("ACTIVE", True),
            ("RELEASED", True),
            ("ERROR", False),
        ),
    )

    class Meta:
        name = "gpu_leases"
        verbose_name = _("GPU Leases")
        no_data_message = _("This project has no GPU leases.")
        status_columns = ("status",)
        row_class = FreshRow
        multi_select = False  # Horizon's boxes for rows have no names
        table_actions = (Filter, LaunchLease)
        row_actions = (ReleaseLease,)
