# SPDX-License-Identifier: Apache-2.0
"""The pages of a project's leases."""

from __future__ import annotations

from typing import Any, cast

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_GET
from django.views.generic import View
from horizon import messages, tables, views, workflows
from horizon.decorators import require_auth
from horizon.utils import memoized

from gsaas_dashboard import cloud
from gsaas_dashboard.content.gpu_leases import tables as own_tables
from gsaas_dashboard.content.gpu_leases import workflows as own_workflows
from gsaas_dashboard.presentation import leases, phases, quantities, readings
from gsaasclient.sdk.leases import Lease

INDEX = "horizon:project:gpu_leases:index"
MOST = 500
"""Leases that the list shows, newest first."""


class Index(tables.DataTableView):
    """The list of leases."""

    table_class = own_tables.Leases
    page_title = _("GPU Leases")
    template_name = "gsaas_dashboard/leases.html"

    def get_data(self) -> list[Lease]:
        return cloud.ask(self.request, _("The leases cannot be listed"), _newest, [])

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        context["limits"] = cloud.ask(
            self.request, _("The quota cannot be read"), lambda gpus: gpus.get_limits(), None
        )
        return context


class Launch(workflows.WorkflowView):
    """The page that launches."""

    workflow_class = own_workflows.LaunchLease
    template_name = "gsaas_dashboard/launch.html"

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        context["page_title"] = self.workflow_class.name
        return context


class Detail(views.HorizonTemplateView):
    """The page with everything about one lease."""

    template_name = "gsaas_dashboard/lease.html"
    page_title = "{{ lease.name }}"

    @memoized.memoized_method
    def get_lease(self) -> Lease:
        found = cloud.ask(
            self.request,
            _("The lease cannot be shown"),
            lambda gpus: gpus.get_lease(str(self.kwargs["lease_id"])),
            None,
            redirect=reverse(INDEX),
        )
        return cast("Lease", found)  # without one, `ask` has redirected

    def get_context_data(self, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**more)
        lease = self.get_lease()
        devices = leases.devices(lease)
        context |= {
            "lease": lease,
            "meaning": leases.MEANINGS.get(lease.status, ""),
            "resting": leases.is_resting(lease),
            "can_be_released": leases.can_be_released(lease),
            "asked": leases.asked(lease.cgpus),
            "requirements": leases.requirements(lease.cgpus),
            "place": leases.place(lease.queue),
            "warnings": leases.warnings(lease),
            "devices": devices,
            "picture": phases.picture(lease.timings),
            "events": [
                (quantities.moment(event["at"]), event["event"], event["status"])
                for event in lease.events or []
            ],
            "created": quantities.moment(lease.created_at),
            "wait_until": quantities.moment(lease.wait_until) if lease.wait_until else "",
            "ends_at": quantities.moment(lease.ends_at) if lease.ends_at else "",
            "environment": "",
            "series": [],
        }
        if devices:
            context["environment"] = leases.exports(self._environment(lease))
        found = self._readings(lease)
        context["series"] = readings.series(found, lease.devices or [])
        context["idle_since"] = found.get("idle_since") and quantities.moment(found["idle_since"])
        return context

    def _environment(self, lease: Lease) -> dict[str, str]:
        return cloud.ask(
            self.request,
            _("The environment cannot be shown"),
            lambda gpus: gpus.get_lease_environment(lease),
            {},
        )

    def _readings(self, lease: Lease) -> dict[str, Any]:
        found = cloud.ask(
            self.request,
            _("The readings cannot be shown"),
            lambda gpus: cloud.readings(gpus, lease.id),
            None,
        )
        return found or {}


class Release(View):
    """Ends a lease from its page."""

    def post(self, request: HttpRequest, lease_id: Any) -> HttpResponse:
        def release(gpus: cloud.Scheduling) -> bool:
            gpus.delete_lease(str(lease_id))
            return True

        if cloud.ask(request, _("The lease cannot be released"), release, False):
            messages.success(request, _("The release of the lease has begun."))
        return HttpResponseRedirect(reverse(INDEX))


@require_GET
@require_auth
def check(request: HttpRequest) -> HttpResponse:
    """Answer whether a request would fit now, as a part of the page that launches."""
    form = own_workflows.CgpuCheck(request.GET)
    answer, problem = None, ""
    if form.is_valid():
        answer, problem = own_workflows.check(request, form.cleaned_data)
    context = {
        "answer": answer,
        "problem": problem,
        "errors": [] if form.is_valid() else _errors(form),
    }
    return render(request, "gsaas_dashboard/_check.html", context)


def _errors(form: own_workflows.CgpuCheck) -> list[str]:
    return [
        f"{form.fields[name].label}: {error}"
        for name, errors in form.errors.items()
        for error in errors
    ]


def _newest(gpus: cloud.Scheduling) -> list[Lease]:
    found = []
    for lease in gpus.leases(sort_key="created_at", sort_dir="desc", limit=100):
        found.append(lease)
        if len(found) == MOST:
            break
    return found
