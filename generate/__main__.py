# SPDX-License-Identifier: Apache-2.0
"""Write every generated file into a folder: `python -m generate FOLDER`."""

from __future__ import annotations

import argparse
from pathlib import Path

from generate import files

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m generate", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    files.write(parser.parse_args().folder)
