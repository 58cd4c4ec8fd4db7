# SPDX-License-Identifier: Apache-2.0
"""The navigation of Horizon on our pages, also while Keystone is away.

Horizon 27 asks Keystone for its version before it shows the navigation, and answers every page with an internal error
if Keystone cannot be reached.
"""

from __future__ import annotations

from django import template
from keystoneauth1.exceptions import ClientException

register = template.Library()

HORIZONS = "horizon/common/_sidebar.html"
OURS = "gsaas_dashboard/_sidebar.html"


@register.simple_tag(takes_context=True)
def sidebar(context: template.Context) -> str:
    """Return Horizon's navigation, or the links to our own pages where that cannot be had."""
    find = context.template.engine.get_template
    try:
        shown: str = find(HORIZONS).render(context)
    except ClientException:
        shown = find(OURS).render(context)
    return shown
