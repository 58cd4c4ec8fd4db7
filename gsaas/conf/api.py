"""Options of the REST API."""

from __future__ import annotations

from oslo_config import cfg

GROUP = cfg.OptGroup("api", title="REST API", help="How gsaas-api answers and whom it believes.")

OPTS = [
    cfg.StrOpt(
        "auth_strategy",
        default="keystone",
        choices=[
            (
                "keystone",
                "tokens are Keystone's; the section [keystone_authtoken] says where it is",
            ),
            ("token-file", "tokens are those in token_file: for a machine without Keystone"),
        ],
        help="Who says who is calling. gsaas-standalone brings its own token file, whatever is set here.",
    ),
    cfg.StrOpt(
        "token_file",
        default="/etc/gsaas/tokens.json",
        help="With auth_strategy = token-file: a JSON list of token, user_id, project_id and roles, "
        "its owner's alone (mode 0600). It is read once, when the service starts.",
    ),
    cfg.StrOpt(
        "public_url",
        help="Where clients find this API, such as https://gpu.example.org: the beginning of every "
        "link in its answers. Unset, links begin with the address that the request was sent to, which "
        "is wrong behind a proxy that ends TLS or rewrites addresses.",
    ),
    cfg.IntOpt(
        "max_limit",
        default=1000,
        min=1,
        max=10000,
        help="Most rows one page of a list may hold, and the page size when the caller names none. "
        "At 1, every listing of n things takes n requests; at 10000, one request may keep a worker busy "
        "for seconds. Lower it if large listings delay other callers.",
    ),
    cfg.IntOpt(
        "max_body_bytes",
        default=262144,
        min=4096,
        max=16777216,
        help="Largest request body, in bytes; a larger one is answered 413 without being read. The "
        "only large thing in a legitimate body is user data, which Nova limits to 65,535 bytes, so "
        "raising this helps nobody but an attacker; below about 90,000 the largest legitimate launch "
        "is refused.",
    ),
    cfg.BoolOpt(
        "metrics_gpus",
        default=False,
        help="Whether /metrics tells of every GPU, with the name of its host. /metrics needs no token, and tenants "
        "are not to know hosts: set this only where tenants cannot reach /metrics, because a proxy in front of the "
        "API keeps it for Prometheus, or on one's own machine.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_group(GROUP)
    conf.register_opts(OPTS, group=GROUP.name)


def list_opts() -> dict[cfg.OptGroup, list[cfg.Opt]]:
    return {GROUP: OPTS}
