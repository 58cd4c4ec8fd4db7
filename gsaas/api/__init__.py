# SPDX-License-Identifier: Apache-2.0
"""The REST API. Begin with `routes`, the table of all URLs; `app` makes the WSGI application of it."""
