# SPDX-License-Identifier: Apache-2.0
"""Panels of Horizon for GSaaS.

`presentation` says what a page shows, as plain values; `cloud` asks the API; `content` has the panels, as Horizon finds
them; `enabled` the files that an operator copies to Horizon.
"""
