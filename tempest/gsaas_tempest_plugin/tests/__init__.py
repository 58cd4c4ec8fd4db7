# SPDX-License-Identifier: Apache-2.0
"""The tests: `base` is what they share."""
