# SPDX-License-Identifier: Apache-2.0
"""GSaaS: GPU scheduling as a service for OpenStack."""
