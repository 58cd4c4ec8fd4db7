# SPDX-License-Identifier: Apache-2.0
"""The demonstration `./dev demo`: runs the published command lines, and proves that they did what they promise."""
