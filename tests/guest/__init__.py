# SPDX-License-Identifier: Apache-2.0
"""The image of VMs, built by diskimage-builder and booted."""
