# SPDX-License-Identifier: Apache-2.0
"""The panel of projects."""

import horizon
from django.utils.translation import gettext_lazy as _


class GpuLeases(horizon.Panel):
    """Shown where the catalogue has GSaaS."""

    name = _("GPU Leases")
    slug = "gpu_leases"
    permissions = ("openstack.services.gpu-scheduling",)
