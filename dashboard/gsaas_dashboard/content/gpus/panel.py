# SPDX-License-Identifier: Apache-2.0
"""The panel of administrators."""

import horizon
from django.utils.translation import gettext_lazy as _


class Gpus(horizon.Panel):
    """Shown to administrators where the catalogue has GSaaS. What they may do is the service's to say."""

    name = _("GPUs")
    slug = "gpus"
    permissions = ("openstack.services.gpu-scheduling", "openstack.roles.admin")
