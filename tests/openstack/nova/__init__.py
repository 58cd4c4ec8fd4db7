# SPDX-License-Identifier: Apache-2.0
"""The engine in the tests' own process on the Nova of the bed, beside tests of the bed's own GSaaS."""
