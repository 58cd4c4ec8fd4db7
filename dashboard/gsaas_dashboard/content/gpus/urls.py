# SPDX-License-Identifier: Apache-2.0
"""URLs below /admin/gpus/."""

from django.urls import path

from gsaas_dashboard.content.gpus import views

urlpatterns = [
    path("", views.Index.as_view(), name="index"),
    path("usage.csv", views.usage_csv, name="usage_csv"),
    path("queue/<uuid:lease_id>/priority", views.ChangePriority.as_view(), name="priority"),
    path("host/<path:name>/disable", views.DisableHost.as_view(), name="disable_host"),
    path("gpu/<path:name>/move", views.MoveLease.as_view(), name="move"),
    path("gpu/<path:name>/disable", views.DisableGpu.as_view(), name="disable_gpu"),
]
