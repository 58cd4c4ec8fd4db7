#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Ends with 0 if the API of this container answers that it is healthy."""

import sys
import urllib.request

URL = "http://127.0.0.1:9870/healthcheck"

if __name__ == "__main__":
    try:
        with urllib.request.urlopen(URL, timeout=8) as answer:
            print(answer.read().decode())
    except OSError as error:
        sys.exit(f"{URL}: {error}")
