# SPDX-License-Identifier: Apache-2.0
"""Admin → Compute → GPUs. Copied to Horizon's `local/enabled`, beside the project's panel, which installs the app."""

PANEL = "gpus"
PANEL_DASHBOARD = "admin"
PANEL_GROUP = "compute"
ADD_PANEL = "gsaas_dashboard.content.gpus.panel.Gpus"
