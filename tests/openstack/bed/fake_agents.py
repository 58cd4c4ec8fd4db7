# SPDX-License-Identifier: Apache-2.0
"""Run by the cloud's own Python: report an L2 agent for each fake hypervisor named.

    python agents.py NEUTRON_CONF ML2_CONF HOST...

Neutron binds a port only on a host whose agent it has heard of. Fake hypervisors have no network,
hence no agent; this speaks for them, in the way and the words of the Open vSwitch agent.
"""

import sys

from neutron.agent import rpc
from neutron.common import config
from neutron.conf.agent import common
from neutron_lib import context
from neutron_lib.agent import topics
from oslo_config import cfg

AGENT = {
    "binary": "neutron-openvswitch-agent",
    "agent_type": "Open vSwitch agent",
    "topic": "N/A",
    "start_flag": True,
    "configurations": {
        "datapath_type": "netdev",
        "integration_bridge": "br-int",
        "ovs_hybrid_plug": True,
        "ovs_capabilities": {"datapath_types": ["netdev"], "iface_types": []},
        "bridge_mappings": {},
        "tunnel_types": [],
        "extensions": [],
        "devices": 0,
    },
}


def report(server: str, ml2: str, hosts: list[str]) -> None:
    config.register_common_config_options()
    common.register_agent_state_opts_helper(cfg.CONF)
    config.init(["--config-file", server, "--config-file", ml2])
    api = rpc.PluginReportStateAPI(topics.REPORTS)
    for host in hosts:
        api.report_state(
            context.get_admin_context_without_session(), AGENT | {"host": host}, use_call=True
        )


if __name__ == "__main__":
    report(sys.argv[1], sys.argv[2], sys.argv[3:])
