# SPDX-License-Identifier: Apache-2.0
"""Which program user data is for, by how it begins: cloud-init, or one that images have in its place.

cloud-init looks at the beginning of data without a type, without case and after white space. Data that begins with none
of its own words it ignores, with a warning in its log.
"""

from __future__ import annotations

import codecs
import re

_CLOUD_INIT = {
    "## template: jinja": "text/jinja2",
    "#!": "text/x-shellscript",
    "#cloud-boothook": "text/cloud-boothook",
    "#cloud-config-archive": "text/cloud-config-archive",
    "#cloud-config-jsonp": "text/cloud-config-jsonp",
    "#cloud-config": "text/cloud-config",
    "#include-once": "text/x-include-once-url",
    "#include": "text/x-include-url",
    "#part-handler": "text/part-handler",
    "#upstart-job": "text/upstart-job",  # of releases before 22
}
"""The words, and the type that data has which begins so. A longer word stands before one that it begins with."""
_LOOKED_AT = 4096


def _pattern(text: str) -> re.Pattern[bytes]:
    return re.compile(text.encode(), re.MULTILINE | re.IGNORECASE)


# Each has all of its patterns. After ^ comes nothing that matches line ends, so that the time is linear.
_OTHERS = {
    "an Ignition config, as for Fedora CoreOS and Flatcar": (
        _pattern(r"\A\s*\{"),
        _pattern(r'"ignition(version)?"\s*:'),
    ),
    "a Butane config, which has to be translated and is then for Ignition": (
        _pattern(r"""^variant:\s*["']?(fcos|flatcar|openshift|r4e|fiot)\b"""),
        _pattern(r"^version:"),
    ),
    "a machine config of Talos": (
        _pattern(r"""^(version|apiVersion):\s*["']?v1alpha1\b"""),
        _pattern(r"^(machine|cluster|kind):"),
    ),
    "a script or a certificate for cloudbase-init, as for Windows": (
        _pattern(
            r"\A\s*(#ps1|rem\s+cmd\b|-----BEGIN CERTIFICATE-----)|^[ \t]*<(script|powershell)>"
        ),
    ),
    "a file of settings for Bottlerocket": (
        _pattern(r"^[ \t]*(\[settings(\.[^\]\n]+)?\]|settings\.[\w.-]+[ \t]*=)"),
    ),
}
_OTHER_CONFIGS = {
    "a cloud-config for CoreOS, RancherOS or k3OS": (_pattern(r"^(coreos|rancher|k3os):"),),
    "a cloud-config for Kairos": (_pattern(r"^(stages|kairos):"),),
}
"""Data that is a cloud-config by its first line. cloud-init has no such keys; the files in it may be of any format."""


def content_type(data: bytes) -> str | None:
    """Return the type that cloud-init gives to *data* without a type; None if it knows none."""
    beginning = data[:_LOOKED_AT].decode(errors="surrogateescape").lower().lstrip()
    found = (kind for word, kind in _CLOUD_INIT.items() if beginning.startswith(word))
    return next(found, None)


def other_reader(data: bytes) -> str | None:
    """Return what *data* is if it is for another program than cloud-init; None if it is for none that is known."""
    kind = content_type(data)
    if kind not in (None, "text/cloud-config"):
        return None
    data = data.removeprefix(codecs.BOM_UTF8)
    found = (
        name
        for name, patterns in (_OTHERS if kind is None else _OTHER_CONFIGS).items()
        if all(pattern.search(data) for pattern in patterns)
    )
    return next(found, None)
