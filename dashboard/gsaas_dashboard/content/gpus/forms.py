# SPDX-License-Identifier: Apache-2.0
"""The forms of administrators."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import exceptions, forms, messages

from gsaas_dashboard import cloud


class Changing(forms.SelfHandlingForm):
    """A form that has GSaaS change something. What the service refuses, the form says, and stays."""

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        """Make the change that the form describes."""
        raise NotImplementedError

    def said(self, data: dict[str, Any]) -> Any:
        """Return the sentence that reports success."""
        raise NotImplementedError

    def handle(self, request: HttpRequest, data: dict[str, Any]) -> bool:
        try:
            cloud.do(request, lambda gpus: self.change(gpus, data))
        except exceptions.NotAuthorized:
            raise
        except exceptions.HorizonException as error:
            self.api_error(str(error))
            return False
        messages.success(request, self.said(data))
        return True


class Disable(Changing):
    """Take a host or a GPU out of service."""

    name = forms.CharField(widget=forms.HiddenInput())
    reason = forms.CharField(
        label=_("Reason"), max_length=255, required=False, help_text=_("For other administrators.")
    )

    def said(self, data: dict[str, Any]) -> Any:
        return _("%s is disabled.") % data["name"]


class DisableHost(Disable):
    """Take a host out of service."""

    leases = forms.ChoiceField(
        label=_("Its leases"),
        required=False,
        choices=(
            ("", _("stay until they end")),
            ("idle", _("move to other hosts when they have no open connections")),
            ("cut", _("move to other hosts now; open connections are cut")),
        ),
    )

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        name, reason = data["name"], data["reason"] or None
        if data["leases"]:
            gpus.drain_host(name, reason, force=data["leases"] == "cut")
        else:
            gpus.disable_host(name, reason)


class DisableGpu(Disable):
    """Take a GPU out of service."""

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        gpus.disable_gpu(data["name"], data["reason"] or None)


class MoveLease(Changing):
    """Move a lease to other GPUs."""

    lease_id = forms.ChoiceField(label=_("Lease"))
    host = forms.CharField(
        label=_("To host"), required=False, help_text=_("By default the lease's policy chooses.")
    )
    force = forms.BooleanField(label=_("Cut connections that are open"), required=False)

    def __init__(self, request: HttpRequest, *args: Any, **more: Any) -> None:
        super().__init__(request, *args, **more)
        self.fields["lease_id"].choices = [
            (lease_id, lease_id) for lease_id in self.initial["leases"]
        ]

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        wanted = {"host": data["host"], "force": data["force"]}
        given = {name: value for name, value in wanted.items() if value}
        gpus.move_lease(data["lease_id"], **given)

    def said(self, data: dict[str, Any]) -> Any:
        return _("Lease %s moves.") % data["lease_id"]


class ChangePriority(Changing):
    """Change the priority of a request in the queue."""

    lease_id = forms.CharField(widget=forms.HiddenInput())
    priority = forms.IntegerField(
        label=_("Priority"),
        help_text=_("Requests of a higher priority come first."),
        widget=forms.TextInput(attrs={"inputmode": "numeric"}),
    )

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        gpus.update_lease(data["lease_id"], priority=data["priority"])

    def said(self, data: dict[str, Any]) -> Any:
        return _("The priority is %s now.") % data["priority"]
