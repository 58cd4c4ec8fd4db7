# SPDX-License-Identifier: Apache-2.0
"""Certificates for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str = "IP:127.0.0.1") -> tuple[str, str]:
    """The files of a certificate for *name* that it signed itself, and of its key."""
    certificate, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        + ["-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", f"subjectAltName={name}"]
        + ["-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
    )
    return certificate, key
