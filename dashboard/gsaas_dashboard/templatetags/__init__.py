# SPDX-License-Identifier: Apache-2.0
"""Tags of the templates."""
