# SPDX-License-Identifier: Apache-2.0
"""The pages of administrators."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET
from horizon import forms, tabs
from horizon.decorators import require_auth, require_perms

from gsaas_dashboard import cloud
from gsaas_dashboard.content.gpus import forms as own_forms
from gsaas_dashboard.content.gpus.panel import Gpus
from gsaas_dashboard.content.gpus.tables import INDEX
from gsaas_dashboard.content.gpus.tabs import Tabs
from gsaas_dashboard.presentation import usage


class Index(tabs.TabbedTableView):
    """The tabs."""

    tab_group_class = Tabs
    template_name = "gsaas_dashboard/gpus.html"
    page_title = _("GPUs")


class Form(forms.ModalFormView):
    """A form in a window, or on a page of its own."""

    template_name = "gsaas_dashboard/form.html"
    tab = "gpus__pool"

    def get_success_url(self) -> str:
        return f"{reverse(INDEX)}?tab={self.tab}"

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        context["submit_url"] = self.request.path
        context["cancel_url"] = self.get_success_url()
        context["help"] = self.help
        return context


class Disable(Form):
    """The form for a host or a GPU, which the URL names."""

    submit_label = _("Disable")

    def get_initial(self) -> dict[str, Any]:
        return {"name": self.kwargs["name"]}


class DisableHost(Disable):
    form_class = own_forms.DisableHost
    form_id = "disable_host"
    page_title = _("Disable and drain a host")
    modal_header = page_title
    help = _(
        "New leases get none of its GPUs. Leases that have one keep it, or move to other hosts, "
        "where their VMs and programs find them at the same addresses; the host is drained when none is left."
    )


class DisableGpu(Disable):
    form_class = own_forms.DisableGpu
    form_id = "disable_gpu"
    page_title = _("Disable a GPU")
    modal_header = page_title
    help = _("New leases do not get it. Leases that have it keep it.")


class MoveLease(Form):
    form_class = own_forms.MoveLease
    form_id = "move_lease"
    page_title = _("Move a lease to other GPUs")
    modal_header = page_title
    submit_label = _("Move")
    help = _(
        "Its VM and programs keep their addresses. What programs have on the GPU does not move along: "
        "while connections are open, the lease stays, unless they are to be cut."
    )

    def get_initial(self) -> dict[str, Any]:
        found: list[str] | None = cloud.ask(
            self.request,
            _("The GPU cannot be read"),
            lambda gpus: gpus.get_gpu(self.kwargs["name"]).leases,
            [],
        )
        return {"leases": found or []}


class ChangePriority(Form):
    form_class = own_forms.ChangePriority
    form_id = "change_priority"
    page_title = _("Change the priority of a request")
    modal_header = page_title
    submit_label = _("Change")
    tab = "gpus__queue"
    help = _("The request keeps its time of arrival, which decides among requests of one priority.")

    def get_initial(self) -> dict[str, Any]:
        return {"lease_id": str(self.kwargs["lease_id"]), "priority": 0}


@require_GET
@require_auth
def usage_csv(request: HttpRequest) -> HttpResponse:
    """Answer with the usage of projects as a file."""
    start, end = (request.GET.get(name, "")[:40] or None for name in ("start", "end"))
    found = cloud.ask(
        request, _("The usage cannot be read"), lambda gpus: gpus.get_usage(start, end), None
    )
    if found is None:
        return HttpResponseRedirect(f"{reverse(INDEX)}?tab=gpus__usage")
    content = usage.as_csv(found.projects, cloud.project_names(request))
    return HttpResponse(
        content,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="gpu-usage.csv"'},
    )


usage_csv = require_perms(usage_csv, Gpus.permissions)
