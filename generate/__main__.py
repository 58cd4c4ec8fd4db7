# SPDX-License-Identifier: Apache-2.0
"""Write every generated file of the source tree."""

from __future__ import annotations

from generate import files

if __name__ == "__main__":
    files.write()
