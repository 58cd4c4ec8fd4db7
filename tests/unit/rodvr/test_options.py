# SPDX-License-Identifier: Apache-2.0
"""Options of the section [rodvr]."""

from __future__ import annotations

from oslo_config import cfg

from gsaas.conf import rodvr


def test_the_grace_period_is_also_read_under_its_former_name(tmp_path) -> None:
    conf = cfg.ConfigOpts()
    rodvr.register_opts(conf)
    file = tmp_path / "gsaas.conf"
    file.write_text("[rodvr]\nfarewell = 7\n")
    conf(["--config-file", str(file)], default_config_dirs=[])
    assert conf.rodvr.grace == 7
