# SPDX-License-Identifier: Apache-2.0
"""What the proxies in front of the API say of a request in its headers, and how much of that is believed.

Each proxy appends the address from which it got the request to X-Forwarded-For, or an element to Forwarded (RFC 7239).
What is before the elements of the proxies, the client wrote. So with *proxies* proxies, the element that counts is that
many from the end. Of the other headers, which a proxy may set or append to, the last value counts.

What has not the form of such a value is as if it were not there: it would be in links and security events.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from typing import Any

_LAST_ELEMENT = re.compile(r'(?:^|,)((?:[^",]|"[^"]*")*)$')
"""The last element of Forwarded, in which commas may be in quotes. A client's quotes, before it, do not count."""
_PAIR = re.compile(r'\s*(\w+)\s*=\s*(?:"([^"]*)"|([^;"\s]*))\s*')
_PORT = re.compile(r"(?:\[(?P<ipv6>[^\]]*)\]|(?P<ipv4>[^:]*))(?::\w+)?")
"""An address that may have a port, of which one of IPv6 is in brackets."""
_HOST = re.compile(r"[A-Za-z0-9.-]+(?::\d+)?|\[[0-9a-fA-F:.]+\](?::\d+)?")
_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.~-]+)+", re.ASCII)
"""A path without a slash at the end, in its only spelling: it has no escapes, empty segments and dots to resolve."""


def read(environ: dict[str, Any], proxies: int) -> None:
    """Change the WSGI *environ* to what the headers of *proxies* proxies say: address, scheme, host and path."""
    told = {} if "HTTP_X_FORWARDED_FOR" in environ else _forwarded(environ, proxies)
    address = told.get("for") or _of_proxies(environ.get("HTTP_X_FORWARDED_FOR", ""), proxies)
    if (source := parse_address(address)) is not None:
        environ["REMOTE_ADDR"] = source
    scheme = (told.get("proto") or _last(environ, "HTTP_X_FORWARDED_PROTO")).lower()
    if scheme in ("http", "https"):
        environ["wsgi.url_scheme"] = scheme
    host = told.get("host") or _last(environ, "HTTP_X_FORWARDED_HOST")
    if _HOST.fullmatch(host):
        environ["HTTP_HOST"] = host
    prefix = _last(environ, "HTTP_X_FORWARDED_PREFIX").rstrip("/")
    if _PREFIX.fullmatch(prefix):
        environ["SCRIPT_NAME"] = prefix + environ.get("SCRIPT_NAME", "")


def parse_address(text: str) -> str | None:
    """Return the IP address in *text*, which may have a port; None if it is none."""
    for candidate in (text, _without_port(text)):
        with suppress(ValueError):
            address = ipaddress.ip_address(candidate)
            if "%" in candidate:  # a zone is any text
                return None
            return str(getattr(address, "ipv4_mapped", None) or address)
    return None


def _without_port(text: str) -> str:
    found = _PORT.fullmatch(text)
    return (found["ipv6"] or found["ipv4"] or "") if found else ""


def _forwarded(environ: dict[str, Any], proxies: int) -> dict[str, str]:
    """Return the pairs of the element of Forwarded that counts."""
    rest: str = environ.get("HTTP_FORWARDED", "")
    elements: list[str] = []
    while rest and len(elements) < proxies and (last := _LAST_ELEMENT.search(rest)):
        elements.insert(0, last[1])
        rest = rest[: last.start()]
    element = _counting(elements, proxies)
    pairs = (_PAIR.fullmatch(pair) for pair in element.split(";"))
    return {pair[1].lower(): pair[2] or pair[3] or "" for pair in pairs if pair}


def _of_proxies(values: str, proxies: int) -> str:
    return _counting(values.split(","), proxies).strip()


def _counting(elements: list[str], proxies: int) -> str:
    """Return the element that the outermost proxy wrote; if it did not see the request, the first one there is."""
    return elements[-min(proxies, len(elements))] if elements else ""


def _last(environ: dict[str, Any], name: str) -> str:
    value: str = environ.get(name, "")
    return value.rpartition(",")[2].strip()
