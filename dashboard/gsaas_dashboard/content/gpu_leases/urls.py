# SPDX-License-Identifier: Apache-2.0
"""URLs below /project/gpu_leases/."""

from django.urls import path

from gsaas_dashboard.content.gpu_leases import views

urlpatterns = [
    path("", views.Index.as_view(), name="index"),
    path("launch", views.Launch.as_view(), name="launch"),
    path("check", views.check, name="check"),
    path("<uuid:lease_id>/", views.Detail.as_view(), name="detail"),
    path("<uuid:lease_id>/release", views.Release.as_view(), name="release"),
]
