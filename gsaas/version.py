"""The release of GSaaS that is installed here."""

from __future__ import annotations

from importlib import metadata

RELEASE = metadata.version("gsaas")
"""Such as `1.0.0`."""
