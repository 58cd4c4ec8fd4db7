# SPDX-License-Identifier: Apache-2.0
"""Programs that compute through a middleware, in VMs of tests."""
