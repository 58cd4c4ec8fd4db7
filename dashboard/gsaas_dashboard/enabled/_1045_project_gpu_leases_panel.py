# SPDX-License-Identifier: Apache-2.0
"""Project → Compute → GPU Leases. Copied to Horizon's `local/enabled`."""

PANEL = "gpu_leases"
PANEL_DASHBOARD = "project"
PANEL_GROUP = "compute"
ADD_PANEL = "gsaas_dashboard.content.gpu_leases.panel.GpuLeases"
ADD_INSTALLED_APPS = ["gsaas_dashboard"]
ADD_JS_FILES = ["gsaas_dashboard/gsaas.js"]
