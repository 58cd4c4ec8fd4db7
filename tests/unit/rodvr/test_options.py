# SPDX-License-Identifier: Apache-2.0
"""Options of the section [rodvr]."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.conf import daemons, rodvr
from gsaas.rodvr.config import USUAL


def test_the_grace_period_is_also_read_under_its_former_name(tmp_path) -> None:
    conf = cfg.ConfigOpts()
    rodvr.register_opts(conf)
    file = tmp_path / "gsaas.conf"
    file.write_text("[rodvr]\nfarewell = 7\n")
    conf(["--config-file", str(file)], default_config_dirs=[])
    assert conf.rodvr.grace == 7


def test_the_limits_of_a_vm_are_those_of_an_endpoint_without_options() -> None:
    conf = cfg.ConfigOpts()
    rodvr.register_opts(conf)
    options = conf.rodvr
    assert USUAL.per_vm == options.connections_per_vm
    assert USUAL.per_daemon == options.connections_per_daemon
    assert USUAL.new_per_second == options.new_connections_per_second


def test_three_vms_together_cannot_take_what_a_gpu_host_admits_from_their_compute_host() -> None:
    conf = cfg.ConfigOpts()
    rodvr.register_opts(conf)
    daemons.register_opts(conf)
    assert 3 * conf.rodvr.connections_per_daemon < conf.daemons.connections_per_source
