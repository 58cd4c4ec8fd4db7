# SPDX-License-Identifier: Apache-2.0
"""The files that an operator copies to Horizon's `local/enabled`."""
