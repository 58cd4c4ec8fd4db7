# SPDX-License-Identifier: Apache-2.0
"""The release of GSaaS that is installed here."""

from __future__ import annotations

from importlib import metadata

RELEASE = metadata.version("gsaas")
"""Such as `1.0.0`."""

OLDEST_AGENT = "1.0.0"
"""The oldest release of gsaas-rodvr and gsaas-monitor that controllers of this release work with."""
