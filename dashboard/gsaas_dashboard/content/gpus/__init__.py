# SPDX-License-Identifier: Apache-2.0
"""Admin → Compute → GPUs."""
