# SPDX-License-Identifier: Apache-2.0
"""`python3 -m gsaas_heat` prints the folder that `plugin_dirs` of heat.conf has to name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.stdout.write(f"{Path(__file__).parent / 'resources'}\n")
