# SPDX-License-Identifier: Apache-2.0
"""Reads JSON bodies, and refuses JSON that cannot be stored or returned.

Python's JSON reader accepts more than JSON allows and more than a database stores: NaN, numbers that no double can
represent, single halves of surrogate pairs, thousands of nested brackets. Each of these is a mistake of the caller,
so each raises `BadRequest` here rather than an unexpected error in a handler.
"""

from __future__ import annotations

import json
import math
from typing import Any

import flask
from werkzeug.exceptions import ClientDisconnected, RequestEntityTooLarge

from gsaas import exceptions
from gsaas.api import errors

MAX_DEPTH = 32
"""Levels of nesting; Nova's own server fields need four."""


def read(request: flask.Request) -> Any:
    """Return the value of the request's body.

    Raises `UnsupportedMediaType`, `BadRequest`, `LengthRequired`, or Werkzeug's `RequestEntityTooLarge`.
    """
    if request.mimetype != "application/json":
        raise errors.UnsupportedMediaType(given=request.mimetype or "nothing")
    chunked = "HTTP_TRANSFER_ENCODING" in request.environ
    return parse(_in_chunks(request) if chunked else request.get_data(cache=False))


def _in_chunks(request: flask.Request) -> bytes:
    """Return a body whose length no header says."""
    if "wsgi.input_terminated" not in request.environ:  # Flask takes it for empty
        raise errors.LengthRequired()
    try:
        data = request.get_data(cache=False)
        # Flask cuts off what is larger, and says so only to one who reads on.
        if len(data) == request.max_content_length and request.environ["wsgi.input"].read(1):
            raise RequestEntityTooLarge
    except (ClientDisconnected, OSError):
        raise errors.LengthRequired() from None
    return data


def parse(data: bytes) -> Any:
    """Return the JSON value in *data*; raises `BadRequest` if it is not exactly one that can be stored."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _invalid(f"byte {error.start} is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _invalid(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise _invalid(str(error)) from None
    # Only an escape can produce half of a surrogate pair: UTF-8 cannot encode one.
    if "\\u" in text:
        _check_surrogates(value)
    _check_depth(value)
    return value


def _invalid(reason: str) -> exceptions.BadRequest:
    return exceptions.BadRequest(reason=f"the body is not valid JSON: {reason}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_float)


def _check_surrogates(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _invalid("a \\u escape is half of a surrogate pair") from None


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _invalid(f"it is nested more than {MAX_DEPTH} levels deep")
