"""What becomes of a launch when Keystone, which knows the limits, cannot be asked.

A real Keystone's limits are tried in tests/openstack.
"""

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
    """Load the limits that a configuration file asks for."""

    def load(text: str) -> limits.Limits:
        path = tmp_path / "gsaas.conf"
        path.write_text(f"[quotas]\ndriver = oslo_limit\n{text}", encoding="utf-8")
        return limits.load(gsaas.conf.load(files=[str(path)]))

    yield load
    # oslo.limit knows no other configuration than this one, and leaves its plug-in's options there.
    cfg.CONF.reset()
    cfg.CONF.unregister_opts(loading.get_auth_plugin_conf_options("password"), group="oslo_limit")


def test_a_keystone_that_does_not_answer_is_not_the_callers_fault(load):
    with pytest.raises(exceptions.IdentityUnavailable):
        load(USER).of("blue")


def test_a_configuration_that_says_nothing_of_keystone_is_refused_at_once(load):
    with pytest.raises(ValueError, match=r"\[oslo_limit\]"):
        load("")
