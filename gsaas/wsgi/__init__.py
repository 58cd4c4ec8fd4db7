# SPDX-License-Identifier: Apache-2.0
"""The API as a WSGI application, for the WSGI server of the operator's choice."""
