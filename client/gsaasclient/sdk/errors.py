# SPDX-License-Identifier: Apache-2.0
"""Errors of the API as the SDK raises them.

The exceptions are the SDK's own, such as `ConflictException`. The SDK finds no message in the errors of the API-SIG's
form, so it is put in here.
"""

from __future__ import annotations

import requests
from openstack import exceptions

from gsaasclient.answers import decode
from gsaasclient.errors import ApiError
from gsaasclient.transport import Response


def check(response: requests.Response) -> None:
    """Raise the SDK's exception for an error status, with the API's sentence as its message."""
    if error := _error_of(response):
        exceptions.raise_from_response(response, error_message=str(error))


def api_error(error: exceptions.HttpException) -> ApiError | None:
    """Return what the API says in *error*: its code, its facts and the request's id. None without an answer."""
    return None if error.response is None else _error_of(error.response)


def _error_of(response: requests.Response) -> ApiError | None:
    if response.status_code < 400:
        return None
    reason = response.reason or ""
    try:
        decode(Response(response.status_code, reason, response.headers, response.content))
    except ApiError as error:
        return error
    return None
