# SPDX-License-Identifier: Apache-2.0
"""The WSGI filters around the API."""

from __future__ import annotations

from pathlib import Path

import pytest
from oslo_middleware import sizelimit
from werkzeug.test import EnvironBuilder

import gsaas.conf
from gsaas.wsgi import filters

SHIPPED = Path(__file__).parents[3] / "etc/gsaas/api-paste.ini"


def app(environ, start_response):
    """Stand for the API."""
    start_response("200 OK", [])
    return [b""]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Surround `app` as a configuration says; the folder of configuration files is empty at first."""
    monkeypatch.setattr(gsaas.conf, "FOLDER", tmp_path)

    def load(paste_config=None):
        conf = gsaas.conf.load(files=[])
        if paste_config:
            conf.set_override("paste_config", str(paste_config), "api")
        return filters.surround(app, conf), conf

    return load


def chain(surrounded):
    """Return the types of the filters, the outermost first, and the configurations that they read."""
    types, confs = [], []
    while surrounded is not app:
        types.append(type(surrounded))
        confs.append(surrounded.oslo_conf)
        surrounded = surrounded.application
    return types, confs


DEFAULT = [filters.Cors, filters.HTTPProxyToWSGI]


def test_without_a_file_the_api_has_the_filters_that_it_always_had(load):
    surrounded, conf = load()
    assert chain(surrounded) == (DEFAULT, [conf, conf])


def test_the_shipped_file_is_the_default(load):
    surrounded, conf = load(SHIPPED)
    assert chain(surrounded) == (DEFAULT, [conf, conf])


def test_a_file_beside_the_configuration_is_used(load, tmp_path):
    text = SHIPPED.read_text().replace("cors http_proxy_to_wsgi api", "http_proxy_to_wsgi api")
    (tmp_path / "api-paste.ini").write_text(text)
    surrounded, _ = load()
    assert chain(surrounded)[0] == [filters.HTTPProxyToWSGI]


def test_the_example_of_the_operators_guide_works(load, tmp_path, monkeypatch):
    guide = SHIPPED.parents[2] / "doc/operator-guide.md"
    (example,) = (
        block for block in guide.read_text().split("```") if "[filter:sizelimit]" in block
    )
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "audit.py").write_text("def factory(global_conf):\n    return lambda app: app\n")
    monkeypatch.syspath_prepend(tmp_path)
    shipped = SHIPPED.read_text()
    pipeline, _, rest = example.lstrip().partition("\n\n")
    default = shipped[shipped.index("[pipeline:main]") :].partition("\n\n")[0]
    (tmp_path / "my.ini").write_text(shipped.replace(default, pipeline) + rest)
    surrounded, _ = load(tmp_path / "my.ini")
    assert chain(surrounded)[0] == [*DEFAULT, sizelimit.RequestBodySizeLimiter]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no section\n", "no section"),
        ("[pipeline:main]\npipeline = nothing\n", "nothing"),
        ("[app:main]\npaste.app_factory = no_such_package:app\n", "no_such_package"),
        ("[app:main]\npaste.app_factory = gsaas.wsgi.filters:api\ncolour = blue\n", "colour"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(load, tmp_path, text, reason):
    path = tmp_path / "broken.ini"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=r"^\[api\]paste_config: .*broken\.ini cannot be used: "
    ) as raised:
        load(path)
    assert reason in str(raised.value)


def test_a_configured_file_that_does_not_exist_is_an_error(load):
    with pytest.raises(ValueError, match=r"/nonexistent/paste\.ini cannot be used"):
        load("/nonexistent/paste.ini")


def ask(application, **environ):
    """Return what the application's environment has become, and the headers of the response."""
    seen, headers = {}, {}

    def api(environ, start_response):
        seen.update(environ)
        return app(environ, start_response)

    def start_response(_status, given, *_):
        headers.update(given)

    innermost = application
    while innermost.application is not app:
        innermost = innermost.application
    innermost.application = api
    list(application(EnvironBuilder("/v1/leases").get_environ() | environ, start_response))
    innermost.application = app
    return seen, headers


@pytest.fixture
def behind_proxy(load):
    """The API behind a proxy, which a dashboard may ask from a browser."""
    _, conf = load()
    conf.set_override("enable_proxy_headers_parsing", True, "oslo_middleware")
    conf.set_override("allowed_origin", ["https://dashboard.example.org"], "cors")
    return filters.surround(app, conf)


def test_the_headers_of_a_proxy_are_read(behind_proxy):
    seen, _ = ask(behind_proxy, HTTP_X_FORWARDED_PROTO="https", HTTP_X_FORWARDED_HOST="gpu.org")
    assert (seen["wsgi.url_scheme"], seen["HTTP_HOST"]) == ("https", "gpu.org")


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://dashboard.example.org", "https://dashboard.example.org"),
        ("https://elsewhere.example.org", None),
    ],
)
@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_a_browser_is_told_whether_it_may_show_the_response(behind_proxy, method, origin, allowed):
    asked = {"HTTP_ORIGIN": origin, "REQUEST_METHOD": method}
    if method == "OPTIONS":
        asked["HTTP_ACCESS_CONTROL_REQUEST_METHOD"] = "GET"
    _, headers = ask(behind_proxy, **asked)
    assert headers.get("Access-Control-Allow-Origin") == allowed


def test_a_request_without_an_origin_is_passed_on_as_it_is(behind_proxy):
    seen, headers = ask(behind_proxy)
    assert "webob.adhoc_attrs" not in seen
    assert headers == {}
