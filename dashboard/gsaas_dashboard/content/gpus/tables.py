# SPDX-License-Identifier: Apache-2.0
"""The tables of administrators: hosts, GPUs, the queue, policies."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy
from horizon import tables

from gsaas_dashboard import cloud
from gsaas_dashboard.presentation import leases, pool, quantities
from gsaasclient.sdk.gpus import Gpu
from gsaasclient.sdk.hosts import Host
from gsaasclient.sdk.policies import Policy
from gsaasclient.sdk.queue import Place

INDEX = "horizon:admin:gpus:index"


class Returning(tables.BatchAction):
    """An action after which its own tab is shown again."""

    tab = "gpus__pool"

    def get_success_url(self, request: HttpRequest | None = None) -> str:
        return f"{reverse(INDEX)}?tab={self.tab}"


class Disable(tables.LinkAction):
    """Opens the form that asks for a reason."""

    name = "disable"
    verbose_name = _("Disable")
    classes = ("ajax-modal",)
    icon = "pause"

    def allowed(self, request: HttpRequest, row: Gpu | Host | None = None) -> bool:
        return row is not None and not row.is_disabled


class DisableHost(Disable):
    url = "horizon:admin:gpus:disable_host"
    verbose_name = _("Disable and drain")

    def allowed(self, request: HttpRequest, row: Gpu | Host | None = None) -> bool:
        return isinstance(row, Host) and row.drain is None


class DisableGpu(Disable):
    url = "horizon:admin:gpus:disable_gpu"


class MoveLease(tables.LinkAction):
    """Opens the form that asks which lease of the GPU is to move, and where to."""

    name = "move"
    verbose_name = _("Move a lease")
    url = "horizon:admin:gpus:move"
    classes = ("ajax-modal",)
    icon = "exchange"

    def allowed(self, request: HttpRequest, gpu: Gpu | None = None) -> bool:
        return gpu is not None and bool(gpu.leases)


class EnableHost(Returning):
    """Returns hosts to service."""

    name = "enable"
    icon = "play"

    @staticmethod
    def action_present(count: int) -> Any:
        return ngettext_lazy("Enable Host", "Enable Hosts", count)

    @staticmethod
    def action_past(count: int) -> Any:
        return ngettext_lazy("Enabled Host", "Enabled Hosts", count)

    def allowed(self, request: HttpRequest, host: Host | None = None) -> bool:
        return host is None or bool(host.is_disabled)

    def action(self, request: HttpRequest, name: str) -> None:
        cloud.act(request, _("The host cannot be enabled"), lambda gpus: gpus.enable_host(name))


class EnableGpu(Returning):
    """Returns GPUs to service, failed ones that wait for an operator among them."""

    name = "enable"
    icon = "play"

    @staticmethod
    def action_present(count: int) -> Any:
        return ngettext_lazy("Enable GPU", "Enable GPUs", count)

    @staticmethod
    def action_past(count: int) -> Any:
        return ngettext_lazy("Enabled GPU", "Enabled GPUs", count)

    def allowed(self, request: HttpRequest, gpu: Gpu | None = None) -> bool:
        return gpu is None or bool(gpu.is_disabled or gpu.awaits_operator)

    def action(self, request: HttpRequest, uuid: str) -> None:
        cloud.act(request, _("The GPU cannot be enabled"), lambda gpus: gpus.enable_gpu(uuid))


class Hosts(tables.DataTable):
    """Hosts with GPUs."""

    name = tables.WrappingColumn("name", verbose_name=_("Host"))
    address = tables.Column("gpu_address", verbose_name=_("GPU address"))
    gpus = tables.Column("gpus", verbose_name=_("GPUs"))
    memory = tables.Column(
        lambda host: f"{host.free_mb} of {host.memory_mb} MiB", verbose_name=_("Free memory")
    )
    state = tables.Column("shown_state", verbose_name=_("State"))
    notes = tables.Column(lambda host: "; ".join(pool.notes(host)) or "-", verbose_name=_("Notes"))

    def get_object_id(self, host: Host) -> str:
        return str(host.name)

    class Meta:
        name = "gpu_hosts"
        verbose_name = _("Hosts")
        no_data_message = _("No host with GPUs is known.")
        multi_select = False  # Horizon's boxes for rows have no names
        row_actions = (EnableHost, DisableHost)


class Gpus(tables.DataTable):
    """GPUs."""

    host = tables.WrappingColumn("host", verbose_name=_("Host"))
    index = tables.Column("index", verbose_name=_("GPU"))
    kind = tables.Column("kind", verbose_name=_("Kind"))
    model = tables.Column("model", verbose_name=_("Model"))
    uuid = tables.WrappingColumn("uuid", verbose_name=_("UUID"))
    claimed = tables.Column(
        lambda gpu: f"{gpu.used_mb} of {gpu.memory_mb} MiB", verbose_name=_("Claimed")
    )
    state = tables.Column("shown_state", verbose_name=_("State"))
    temperature = tables.Column("shown_temperature", verbose_name=_("Temperature"))
    holders = tables.Column(lambda gpu: len(gpu.leases or []), verbose_name=_("Leases"))

    def get_object_id(self, gpu: Gpu) -> str:
        return str(gpu.uuid)

    def get_object_display(self, gpu: Gpu) -> str:
        return f"{gpu.host}, GPU {gpu.index}"

    class Meta:
        name = "gpus"
        verbose_name = _("GPUs")
        no_data_message = _("No GPU is known.")
        multi_select = False
        row_actions = (DisableGpu, EnableGpu, MoveLease)


class ChangePriority(tables.LinkAction):
    """Opens the form that asks for the priority."""

    name = "priority"
    verbose_name = _("Change priority")
    url = "horizon:admin:gpus:priority"
    classes = ("ajax-modal",)
    icon = "sort"


class Remove(tables.DeleteAction):
    """Ends requests that wait."""

    @staticmethod
    def action_present(count: int) -> Any:
        return ngettext_lazy("Remove from the Queue", "Remove from the Queue", count)

    @staticmethod
    def action_past(count: int) -> Any:
        return ngettext_lazy("Removed from the Queue", "Removed from the Queue", count)

    def delete(self, request: HttpRequest, obj_id: str) -> None:
        cloud.act(
            request, _("The request cannot be removed"), lambda gpus: gpus.delete_lease(obj_id)
        )

    def get_success_url(self, request: HttpRequest | None = None) -> str:
        return f"{reverse(INDEX)}?tab=gpus__queue"


class Queue(tables.DataTable):
    """Requests that wait, in the order of their turns."""

    position = tables.Column("position", verbose_name=_("Turn"))
    name = tables.WrappingColumn("name", verbose_name=_("Lease"))
    project = tables.WrappingColumn("project_id", verbose_name=_("Project"))
    asked = tables.Column(lambda place: leases.asked(place.cgpus), verbose_name=_("cGPUs"))
    priority = tables.Column("priority", verbose_name=_("Priority"))
    since = tables.Column(
        lambda place: quantities.moment(place.queued_at), verbose_name=_("Waits since")
    )
    estimate = tables.Column(
        lambda place: quantities.seconds(place.estimate_seconds), verbose_name=_("Estimate")
    )

    def get_object_id(self, place: Place) -> str:
        return str(place.lease_id)

    class Meta:
        name = "queue"
        verbose_name = _("Queue")
        no_data_message = _("No request waits.")
        multi_select = False
        row_actions = (ChangePriority, Remove)


class UsePolicy(Returning):
    """Makes a policy the default."""

    name = "use"
    tab = "gpus__policies"
    icon = "check"

    @staticmethod
    def action_present(count: int) -> Any:
        return ngettext_lazy("Make Default", "Make Default", count)

    @staticmethod
    def action_past(count: int) -> Any:
        return ngettext_lazy("Made Default", "Made Default", count)

    def allowed(self, request: HttpRequest, policy: Policy | None = None) -> bool:
        return policy is not None and not policy.is_default

    def action(self, request: HttpRequest, name: str) -> None:
        cloud.act(
            request,
            _("The policy cannot be made the default"),
            lambda gpus: gpus.set_default_policy(name),
        )


class Policies(tables.DataTable):
    """Policies."""

    name = tables.Column("name", verbose_name=_("Policy"))
    is_default = tables.Column(
        lambda policy: _("default") if policy.is_default else "", verbose_name=_("Default")
    )
    is_allowed = tables.Column(
        lambda policy: _("yes") if policy.is_allowed else _("no"),
        verbose_name=_("Requests may name it"),
    )
    description = tables.WrappingColumn("description", verbose_name=_("How it chooses"))

    def get_object_id(self, policy: Policy) -> str:
        return str(policy.name)

    class Meta:
        name = "policies"
        verbose_name = _("Policies")
        multi_select = False
        row_actions = (UsePolicy,)
