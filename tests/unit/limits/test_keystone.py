# SPDX-License-Identifier: Apache-2.0
"""Limits in Keystone, when it does not answer or is not configured. tests/openstack has a real Keystone."""

from __future__ import annotations

import pytest
from keystoneauth1 import loading
from oslo_config import cfg

import gsaas.conf
from gsaas import exceptions, limits

USER = """
[oslo_limit]
auth_type = password
auth_url = http://127.0.0.1:1/v3
username = gsaas
password = secret
user_domain_name = Default
system_scope = all
"""


@pytest.fixture
def load(tmp_path):
    """A function that returns the limits for a configuration file with the given text."""

    def load(text: str) -> limits.Limits:
        path = tmp_path / "gsaas.conf"
        path.write_text(f"[quotas]\ndriver = oslo_limit\n{text}", encoding="utf-8")
        return limits.load(gsaas.conf.load(files=[str(path)]))

    yield load
    # oslo.limit uses the global configuration, and leaves its plug-in's options there.
    cfg.CONF.reset()
    cfg.CONF.unregister_opts(loading.get_auth_plugin_conf_options("password"), group="oslo_limit")


def test_a_keystone_that_does_not_answer_raises_identity_unavailable(load):
    with pytest.raises(exceptions.IdentityUnavailable):
        load(USER).of("blue")


def test_a_configuration_without_a_keystone_user_is_refused_at_load(load):
    with pytest.raises(ValueError, match=r"\[oslo_limit\]"):
        load("")
