# SPDX-License-Identifier: Apache-2.0
"""The service client of the REST API, and what waits with it."""
