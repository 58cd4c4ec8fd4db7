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

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        gpus.disable_host(data["name"], data["reason"] or None)


class DisableGpu(Disable):
    """Take a GPU out of service."""

    def change(self, gpus: cloud.Scheduling, data: dict[str, Any]) -> None:
        gpus.disable_gpu(data["name"], data["reason"] or None)


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
