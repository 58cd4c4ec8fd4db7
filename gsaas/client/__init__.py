"""Speak to the GSaaS API: credentials in, decoded answers out, one sentence for what goes wrong.

    client = Client(find_credentials(os.environ))
    client.request("GET", "/v1/leases")

Every command is a new process, so these files are careful about what they import: the HTTP library
is loaded with the first request, and the OpenStack SDK only for credentials that are Keystone's.
"""

from gsaas.client.api import Client
from gsaas.client.credentials import (
    CREDENTIALS_VARIABLE,
    DEFAULT_CREDENTIALS,
    Credentials,
    find_credentials,
)
from gsaas.client.errors import (
    ApiError,
    ClientError,
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
    "Credentials",
    "CredentialsError",
    "StillBusyError",
    "UnreachableError",
    "find_credentials",
]
