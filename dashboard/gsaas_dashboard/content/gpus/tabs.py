# SPDX-License-Identifier: Apache-2.0
"""The tabs of administrators. Each asks for what it shows only when it is shown."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from horizon import tabs
from horizon.utils import memoized

from gsaas_dashboard import cloud
from gsaas_dashboard.content.gpus import tables
from gsaas_dashboard.presentation import pool, quantities, usage
from gsaasclient.sdk.gpus import Gpu
from gsaasclient.sdk.hosts import Host
from gsaasclient.sdk.policies import Policy
from gsaasclient.sdk.queue import Place


class PoolTab(tabs.TableTab):
    """The map, the hosts and the GPUs."""

    name = _("Pool")
    slug = "pool"
    table_classes = (tables.Hosts, tables.Gpus)
    template_name = "gsaas_dashboard/pool.html"
    preload = False

    @memoized.memoized_method
    def _gpus(self) -> list[Gpu]:
        return cloud.ask(
            self.request,
            _("The GPUs cannot be listed"),
            lambda gpus: list(gpus.gpus(limit=1000)),
            [],
        )

    @memoized.memoized_method
    def _hosts(self) -> list[Host]:
        return cloud.ask(
            self.request,
            _("The hosts cannot be listed"),
            lambda gpus: list(gpus.hosts(limit=1000)),
            [],
        )

    @memoized.memoized_method
    def _rows(self) -> list[pool.Row]:
        return pool.rows(self._hosts(), self._gpus())

    def get_gpu_hosts_data(self) -> list[Host]:
        states = {row.name: row.state for row in self._rows()}
        found = sorted((h for h in self._hosts() if h.name in states), key=lambda host: host.name)
        for host in found:
            host.shown_state = states[host.name]
        return found

    def get_gpus_data(self) -> list[Gpu]:
        tiles = {tile.uuid: tile for row in self._rows() for tile in row.tiles}
        found = sorted(self._gpus(), key=lambda gpu: (gpu.host, gpu.index))
        for gpu in found:
            gpu.shown_state = tiles[gpu.uuid].state
            gpu.shown_temperature = tiles[gpu.uuid].temperature or "-"
        return found

    def get_context_data(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(request, **more)
        context["rows"] = self._rows()
        context["colours"] = pool.COLOURS
        return context


class QueueTab(tabs.TableTab):
    """The requests that wait."""

    name = _("Queue")
    slug = "queue"
    table_classes = (tables.Queue,)
    template_name = "horizon/common/_detail_table.html"
    preload = False

    def get_queue_data(self) -> list[Place]:
        return cloud.ask(
            self.request,
            _("The queue cannot be listed"),
            lambda gpus: list(gpus.queue(limit=1000)),
            [],
        )


class PoliciesTab(tabs.TableTab):
    """The policies."""

    name = _("Policies")
    slug = "policies"
    table_classes = (tables.Policies,)
    template_name = "horizon/common/_detail_table.html"
    preload = False

    def get_policies_data(self) -> list[Policy]:
        return cloud.ask(
            self.request, _("The policies cannot be listed"), lambda gpus: list(gpus.policies()), []
        )


class UsageTab(tabs.Tab):
    """What projects used in a period."""

    name = _("Usage")
    slug = "usage"
    template_name = "gsaas_dashboard/usage.html"
    preload = False

    def get_context_data(self, request: HttpRequest, **more: Any) -> dict[str, Any]:
        start, end = (request.GET.get(name, "")[:40] for name in ("start", "end"))
        found = cloud.ask(
            request,
            _("The usage cannot be shown"),
            lambda gpus: gpus.get_usage(start or None, end or None),
            None,
        )
        names = cloud.project_names(request) if found else {}
        return {
            "start": start,
            "end": end,
            "since": quantities.moment(found.start) if found else "",
            "until": quantities.moment(found.end) if found else "",
            "bars": usage.bars(found.projects, names) if found else [],
            "currency": (found.currency if found else None) or "",
        }


class Tabs(tabs.TabGroup):
    slug = "gpus"
    tabs = (PoolTab, QueueTab, PoliciesTab, UsageTab)
    sticky = True
