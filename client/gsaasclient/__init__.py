# SPDX-License-Identifier: Apache-2.0
"""A client of the GSaaS API: requests and answers as JSON values, and errors as exceptions with one sentence each.

    client = Client(find_credentials(os.environ))
    client.request("GET", "/v1/leases")

Every `gsaas` command is a new process, so imports are late: the HTTP library is loaded with the first request, and the
OpenStack SDK only for Keystone's credentials.
"""

from gsaasclient.api import Client
from gsaasclient.credentials import (
    CREDENTIALS_VARIABLE,
    DEFAULT_CREDENTIALS,
    Credentials,
    find_credentials,
)
from gsaasclient.errors import (
    ApiError,
    ClientError,
    ConnectionLostError,
    CredentialsError,
    StillBusyError,
    UnreachableError,
)

__all__ = [
    "CREDENTIALS_VARIABLE",
    "DEFAULT_CREDENTIALS",
    "ApiError",
    "Client",
    "ClientError",
    "ConnectionLostError",
    "Credentials",
    "CredentialsError",
    "StillBusyError",
    "UnreachableError",
    "find_credentials",
]
