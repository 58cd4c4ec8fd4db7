# SPDX-License-Identifier: Apache-2.0
"""What Tempest asks a plug-in for: its tests, its options and its service clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oslo_config import cfg
from tempest import config
from tempest.test_discover import plugins

from gsaas_tempest_plugin import config as options


class GsaasTempestPlugin(plugins.TempestPlugin):
    """The entry point `gsaas` of the group `tempest.test_plugins`."""

    def load_tests(self) -> tuple[str, str]:
        """Return the folder of the tests, and the folder from which their modules are named."""
        package = Path(__file__).resolve().parent
        return str(package / "tests"), str(package.parent)

    def register_opts(self, conf: cfg.ConfigOpts) -> None:
        """Register the options of `config`."""
        config.register_opt_group(
            conf, options.SERVICE_AVAILABLE_GROUP, options.SERVICE_AVAILABLE_OPTS
        )
        config.register_opt_group(conf, options.GROUP, options.OPTS)

    def get_opt_lists(self) -> list[tuple[str, list[cfg.Opt]]]:
        """Return the options by group, for the sample of `tempest.conf`."""
        return [
            (options.SERVICE_AVAILABLE_GROUP.name, options.SERVICE_AVAILABLE_OPTS),
            (options.GROUP.name, options.OPTS),
        ]

    def get_service_clients(self) -> list[dict[str, Any]]:
        """Return how client managers make `gpu_scheduling.GpuSchedulingClient`."""
        return [
            {
                "name": "gpu_scheduling",
                "service_version": "gpu_scheduling",
                "module_path": "gsaas_tempest_plugin.services.gpu_scheduling_client",
                "client_names": ["GpuSchedulingClient"],
                **config.service_client_config("gpu_scheduling"),
            }
        ]
