# SPDX-License-Identifier: Apache-2.0
"""Options of the REST API."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup(
    "api", title="REST API", help="How gsaas-api answers requests and authenticates callers."
)

OPTS: list[cfg.Opt] = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            (
                "keystone",
                "tokens are Keystone's; the section [keystone_authtoken] says where Keystone is",
            ),
            ("token-file", "tokens are those in token_file: for a machine without Keystone"),
        ],
        help="How callers are authenticated. gsaas-standalone always uses a token file of its own.",
    ),
    cfg.StrOpt(
        "token_file",
        default="/etc/gsaas/tokens.json",
        help="With auth_strategy = token-file: a JSON list of token, user_id, project_id and roles, "
        "readable by its owner only (mode 0600). It is read once, when the service starts.",
    ),
    cfg.StrOpt(
        "public_url",
        help="URL at which clients reach this API, such as https://gpu.example.org: the beginning of every "
        "link in its answers. If unset, links are relative to the host, such as /v1/leases, which is wrong behind a "
        "proxy that serves the API under another path. The host that a request names is never used.",
    ),
    cfg.IntOpt(
        "proxies",
        default=1,
        min=1,
        max=16,
        help="With [oslo_middleware]enable_proxy_headers_parsing: how many proxies, one behind the other, append the "
        "address of who asks them to X-Forwarded-For or Forwarded. The address that many from the end counts in "
        "security events. With fewer than there are, it is a proxy's; with more, a client can write one.",
    ),
    cfg.StrOpt(
        "paste_config",
        help="File for PasteDeploy with the WSGI filters around the API. If unset, it is /etc/gsaas/api-paste.ini, if "
        "that exists; without a file, the filters are CORS and the one that reads the headers of proxies. Each "
        "filter delays every request by what it does.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        max=10000,
        help="Largest number of rows in one page of a list, and the page size if a request names none. "
        "At 1, a list of n rows takes n requests; at 10000, one request may keep a worker busy "
        "for seconds. Lower it if large lists delay other callers.",
    ),
    cfg.IntOpt(
        "max_body_bytes",
        default=262144,
        min=4096,
        max=16777216,
        help="Largest request body, in bytes; a larger one is answered with status 413 without being read. The "
        "only large part of a legitimate body is user data, which Nova limits to 65,535 bytes, so "
        "raising this serves only attackers; below about 90,000, the largest legitimate launch "
        "is refused.",
    ),
    cfg.IntOpt(
        "most_leases_stored",
        default=200000,
        min=-1,
        help="Most leases that one project may have in the database, released ones included; further launches are "
        "refused with status 403 until `gsaas-manage db purge` has deleted old ones. -1 means no limit. Each lease "
        "takes about two kilobytes. It has to allow all launches of the busiest project in [engine]keep_released days. "
        "Each API process counts a project's leases once a minute at most, so a project may exceed it a little.",
    ),
    cfg.BoolOpt(
        "metrics_gpus",
        default=False,
        help="Whether /metrics shows every GPU, with the name of its host. /metrics needs no token, and tenants must "
        "not learn the names of hosts: set this only where tenants cannot reach /metrics, for instance because a "
        "proxy in front of the API allows it to Prometheus alone.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of this module."""
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    """Return the options by group."""
    return {GROUP: OPTS}
