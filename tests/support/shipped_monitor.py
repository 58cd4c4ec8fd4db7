# SPDX-License-Identifier: Apache-2.0
"""How an operator installs gsaas-monitor in a machine with systemd: its users, its unit and its rule of polkit.

The program is not a package there: it is this repository, with the virtual environment of the tests.
"""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCE = "/opt/source"
"""Where the machine has to see this repository: units see nothing in /root and /home."""
PACKAGES = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages"
MONITOR = f"""\
#!/bin/sh
export PYTHONPATH={SOURCE}:{SOURCE}/{PACKAGES.relative_to(REPOSITORY) if PACKAGES.is_relative_to(REPOSITORY) else ""}
exec /usr/bin/python3 -B -m gsaas.cli.monitor "$@"
"""
INSTALL = f"""\
mkdir -p /opt/gsaas/bin
useradd --system --home-dir /nonexistent --shell /usr/sbin/nologin gsaas
useradd --system --user-group --home-dir /nonexistent --shell /usr/sbin/nologin gsaas-monitor
install -d -m 0750 -o root -g gsaas /etc/gsaas
cp {SOURCE}/etc/gsaas/systemd/gsaas-monitor.service /etc/systemd/system/
cp {SOURCE}/etc/gsaas/polkit/gsaas-monitor.rules /etc/polkit-1/rules.d/
install -m 0755 /dev/stdin /opt/gsaas/bin/gsaas-monitor <<'END'
{MONITOR}
END
systemctl daemon-reload
"""
"""What root types."""
