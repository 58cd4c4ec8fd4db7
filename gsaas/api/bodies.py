"""Read a JSON body, and refuse what looks like JSON but cannot be stored or answered.

Python's reader takes more than JSON allows and more than a database keeps: NaN, numbers beyond a
double, half of a surrogate pair, thousands of brackets in brackets. Each of these is the caller's
mistake, so each is a `BadRequest` here and not a surprise further in.
"""

from __future__ import annotations

import json
import math
from typing import Any

import flask

from gsaas import exceptions
from gsaas.api import errors

MAX_DEPTH = 32
"""Levels of nesting; Nova's own server fields need four."""


def read(request: flask.Request) -> Any:
    """Return what the body says; raises `UnsupportedMediaType` or `BadRequest`."""
    if request.mimetype != "application/json":
        raise errors.UnsupportedMediaType(given=request.mimetype or "nothing")
    return parse(request.get_data(cache=False))


def parse(data: bytes) -> Any:
    """Return what *data* says; raises `BadRequest` if it is not one JSON value that we can keep."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refused(f"byte {error.start} is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _refused(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise _refused(str(error)) from None
    if "\\u" in text:
        _refuse_halves(value)
    _refuse_depth(value)
    return value


def _refused(why: str) -> exceptions.BadRequest:
    return exceptions.BadRequest(reason=f"the body is not JSON that can be used: {why}")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is too large")
    return number


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)


def _refuse_halves(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _refused("a \\u escape is half of a surrogate pair") from None


def _refuse_depth(value: Any) -> None:
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
    raise _refused(f"it is nested more than {MAX_DEPTH} levels deep")
