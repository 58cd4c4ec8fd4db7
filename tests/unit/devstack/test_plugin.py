# SPDX-License-Identifier: Apache-2.0
"""The DevStack plug-in: what it writes, registers, starts and removes on each kind of node.

All of its phases run in order, with stand-ins for DevStack's functions. GSaaS itself reads what they wrote.
"""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
from oslo_policy.policy import Rules

from gsaas import conf
from gsaas.db import engines
from gsaas.gpu_host import inventory
from gsaas.rpc import signatures
from tests.unit.devstack.node import (
    ADDRESS,
    COMPUTE_HOST,
    CONTROLLER,
    GPU_HOST,
    PROGRAMS,
    SOURCE,
    STACK,
    Node,
)

pytestmark = pytest.mark.slow

API, ENGINE, RODVR, MONITOR = "gsaas-api", "gsaas-engine", "gsaas-rodvr", "gsaas-monitor"
HOST_RULE = "compute:servers:create:requested_destination"
ANOTHER_RULE = '"os_compute_api:servers:create": "role:member"'


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """One node after `stack.sh`, shared by all tests, which only read from it."""
    node = Node(tmp_path_factory.mktemp("node"), CONTROLLER + COMPUTE_HOST)
    node.run(*STACK)
    return node


def started(node: Node) -> list[str]:
    return [call.split()[0] for call in node.did("run_process")]


# What a node gets


def test_a_node_with_all_of_nova_gets_all_of_gsaas(stacked: Node) -> None:
    programs = stacked.programs
    assert stacked.did("run_process") == [
        f"gsaas-api {stacked.root}/bin/uwsgi --procname-prefix gsaas-api"
        f" --ini {stacked.conf.parent}/gsaas-api-uwsgi.ini --venv {programs.parent}",
        f"gsaas-engine {programs}/gsaas-engine --config-file {stacked.conf}",
        f"gsaas-rodvr {programs}/gsaas-rodvr --config-file {stacked.rodvr_conf}",
        f"gsaas-monitor {programs}/gsaas-monitor --config-file {stacked.monitor_conf}",
    ]
    assert stacked.did("wait_for_service") == ["http://controller/gpu-scheduling/healthcheck"]


@pytest.mark.parametrize(
    ("services", "local", "wanted"),
    [
        pytest.param(CONTROLLER, "", [API, ENGINE], id="controller"),
        pytest.param(COMPUTE_HOST, "", [RODVR, MONITOR], id="compute host with GPUs"),
        pytest.param((*COMPUTE_HOST, RODVR), "", [RODVR], id="compute host without"),
        pytest.param(COMPUTE_HOST, f"DISABLED_SERVICES={MONITOR}", [RODVR], id="monitor disabled"),
        pytest.param(GPU_HOST, "", [MONITOR], id="GPU host"),
        pytest.param((*CONTROLLER, ENGINE), "", [ENGINE], id="a second engine"),
        pytest.param(("mysql", "rabbit"), "", [], id="neither Nova nor GSaaS"),
    ],
)
def test_a_node_runs_what_it_is_for(
    tmp_path: Path, services: tuple[str, ...], local: str, wanted: list[str]
) -> None:
    node = Node(tmp_path, services, local)
    node.run(*STACK)
    assert started(node) == wanted
    node.forget()
    node.run("unstack")
    assert sorted(node.did("stop_process")) == sorted(wanted)


def test_an_agents_node_knows_no_password_but_that_of_the_message_bus(tmp_path: Path) -> None:
    node = Node(tmp_path, COMPUTE_HOST)
    node.run(*STACK)
    assert not node.conf.exists()
    for file, own in ((node.rodvr_conf, "rodvr"), (node.monitor_conf, "monitor")):
        written = node.written(file)
        assert set(written) == {"DEFAULT", "remoting", "bus", own}
        assert set(written["bus"]) == {"host_keys"}
        assert not [
            option for section in written.values() for option in section if "password" in option
        ]


# Which messages on the message bus are accepted


def test_controllers_have_a_secret_and_no_agent_can_read_it(stacked: Node) -> None:
    secret = stacked.written(stacked.conf)["bus"]["secrets"]
    assert re.fullmatch("[0-9a-f]{64}", secret)
    for file in (stacked.rodvr_conf, stacked.monitor_conf):
        assert secret not in file.read_text()
        assert secret not in (stacked.root / "journal").read_text()


def test_each_agent_has_the_key_of_its_role(stacked: Node) -> None:
    for file, role in ((stacked.rodvr_conf, "compute"), (stacked.monitor_conf, "gpu")):
        assert stacked.written(file)["bus"] == {"host_keys": f"key-of node-1 --role {role}"}


def test_nodes_with_the_same_passwords_have_keys_that_their_controllers_know(
    tmp_path: Path,
) -> None:
    """With the program itself: controllers recognise what an agent on another node signs."""
    local = f"function get_python_exec_prefix {{ echo {PROGRAMS}; }}"
    controller, gpu_host = Node(tmp_path / "1", CONTROLLER), Node(tmp_path / "2", GPU_HOST, local)
    for node in (controller, gpu_host):
        node.run("stack post-config")
    (secret,) = conf.load(files=[str(controller.conf)]).bus.secrets
    bus = conf.load(files=[str(gpu_host.monitor_conf)]).bus
    assert bus.host_keys == [signatures.key_of(secret, "node-1@gsaas-monitor")]
    assert (bus.secrets, bus.enforce) == ([], True)


def test_the_secret_may_be_chosen(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER, "GSAAS_BUS_SECRET=chosen")
    node.run("stack post-config")
    assert node.written(node.conf)["bus"] == {"secrets": "chosen"}


@pytest.mark.parametrize("works", [True, False], ids=["works", "fails"])
def test_the_secret_is_neither_in_the_log_nor_left_in_a_file(tmp_path: Path, works: bool) -> None:
    """stack.sh prints each command that it executes, and ends at the first that fails."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    local = ["GSAAS_BUS_SECRET=chosen-by-the-operator", f"export TMPDIR={temporary}"]
    if not works:
        local.append("printf '#!/bin/false\\n' >$DEST/venv/bin/gsaas-manage")
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST, "\n".join([*local, "set -o xtrace"]))
    ran = node.run("stack post-config", check=False)
    assert (ran.returncode == 0) is works
    assert "+ configure_gsaas_key" in ran.stderr
    assert "chosen-by-the-operator" not in ran.stdout + ran.stderr
    assert "key-of node-1" not in ran.stdout + ran.stderr
    assert list(temporary.iterdir()) == []
    assert node.written(node.conf)["bus"] == {"secrets": "chosen-by-the-operator"}


def test_only_the_node_of_the_api_registers_gsaas_and_makes_tables(tmp_path: Path) -> None:
    node = Node(tmp_path, (*CONTROLLER, ENGINE))
    node.run(*STACK)
    assert not node.did("create_service_user")
    assert not node.did("recreate_database")


# What is installed


def test_it_shares_the_environment_and_the_constraints_of_devstacks_services(stacked: Node) -> None:
    assert stacked.did("setup_develop") == [
        f"{SOURCE}/launcher",
        f"{SOURCE}/client",
        f"{SOURCE} api,engine,rodvr,monitor,mysql",
    ]
    assert len(stacked.did("install_apache_uwsgi")) == 1


@pytest.mark.parametrize(
    ("services", "extras"),
    [
        (COMPUTE_HOST, "rodvr,monitor"),
        (GPU_HOST, "monitor"),
        ((*CONTROLLER, ENGINE), "engine,mysql"),
    ],
    ids=["compute host", "GPU host", "a second engine"],
)
def test_a_node_installs_what_its_services_need(
    tmp_path: Path, services: tuple[str, ...], extras: str
) -> None:
    node = Node(tmp_path, services)
    node.run("stack pre-install", "stack install")
    assert node.did("setup_develop") == [f"{SOURCE} {extras}"]


def test_the_launcher_is_compiled_where_tenants_commands_are(tmp_path: Path) -> None:
    source = (SOURCE / "launcher" / "setup.py").read_text()
    (packages,) = re.findall('^PACKAGES = "(.*)"$', source, re.MULTILINE)
    controller, gpu_host = Node(tmp_path / "1", CONTROLLER), Node(tmp_path / "2", GPU_HOST)
    for node in (controller, gpu_host):
        node.run("stack pre-install")
    assert packages in controller.did("install_package")
    assert gpu_host.did("install_package") == ["iproute2 nftables polkitd"]


def test_devstack_finds_the_name_of_each_distribution(stacked: Node) -> None:
    """It takes the third word of the line of setup.cfg that begins with `name`, to edit its constraints."""
    for call in stacked.did("setup_develop"):
        folder = Path(call.split()[0])
        lines = (folder / "setup.cfg").read_text().splitlines()
        (name,) = [line.split()[2] for line in lines if re.match("name.*=", line)]
        assert name in ("gsaas", "gsaas-launcher", "python-gsaasclient")


def test_the_extras_of_a_node_exist() -> None:
    for extra in ("mysql", "postgresql"):
        assert metadata.metadata("gsaas").get_all("Provides-Extra").count(extra) == 1


def test_its_commands_are_where_a_shell_finds_them(stacked: Node) -> None:
    for name in ("gsaas", "gsaas-manage"):
        link = stacked.root / "commands" / name
        assert link.readlink() == stacked.programs / name


# What is configured


@pytest.mark.parametrize("file", ["conf", "rodvr_conf", "monitor_conf"])
def test_every_option_that_is_written_is_one_that_there_is(stacked: Node, file: str) -> None:
    validated = subprocess.run(
        [
            PROGRAMS / "oslo-config-validator",
            f"--input-file={getattr(stacked, file)}",
            *(f"--namespace={name}" for name in generated()),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert validated.returncode == 0, validated.stderr


def generated() -> list[str]:
    lines = (SOURCE / "etc/gsaas/gsaas-config-generator.conf").read_text().splitlines()
    return [line.partition("= ")[2] for line in lines if line.startswith("namespace")]


def test_gsaas_understands_its_configuration(stacked: Node) -> None:
    settings = conf.load(files=[str(stacked.conf)])
    assert settings.host == "node-1"
    assert settings.engine.cloud == "nova"
    assert settings.api.auth_strategy == "keystone"
    assert settings.api.public_url == "http://controller/gpu-scheduling"
    assert settings.remoting.driver == "simulated"


def test_it_logs_in_as_a_user_of_its_own_and_checks_tokens(stacked: Node) -> None:
    written = stacked.written(stacked.conf)
    for section in ("keystone_authtoken", "service_user"):
        assert written[section]["username"] == "gsaas"
        assert written[section]["auth_url"] == "http://controller/identity"
        assert written[section]["cafile"] == f"{stacked.root}/ca-bundle.pem"
    for section in ("nova", "neutron", "glance", "placement"):
        where = {name: written[section][name] for name in ("region_name", "valid_interfaces")}
        assert where == {"region_name": "RegionOne", "valid_interfaces": "public"}


def test_the_api_is_an_application_of_uwsgi_behind_apache(stacked: Node) -> None:
    assert stacked.written(stacked.conf.parent / "gsaas-api-uwsgi.ini") == {
        "uwsgi": {
            "module": "gsaas.wsgi.api:application",
            "processes": "2",
            "threads": "64",
            "need-app": "true",
            "env": f"GSAAS_CONFIG_FILES={stacked.conf}",
        }
    }
    site = stacked.root / "sites" / "gsaas-api.conf"
    assert site.read_text() == "ProxyPass /gpu-scheduling\n"


def test_clients_that_wait_leave_threads_for_others(stacked: Node) -> None:
    threads = stacked.written(stacked.conf.parent / "gsaas-api-uwsgi.ini")["uwsgi"]["threads"]
    assert int(threads) > conf.load(files=[str(stacked.conf)]).queue.long_polls


def test_the_apis_workers_count_together(stacked: Node) -> None:
    service = stacked.written(stacked.unit(API))["Service"]
    assert service["RuntimeDirectory"] == "gsaas-api"
    assert service["Environment"] == "PROMETHEUS_MULTIPROC_DIR=/run/gsaas-api"


def test_rodvr_has_one_capability(stacked: Node) -> None:
    service = stacked.written(stacked.unit(RODVR))["Service"]
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_ADMIN"
    assert service["NoNewPrivileges"] == "true"


@pytest.mark.parametrize("driver", ["simulated", "rcuda", "lupine"])
def test_the_monitor_may_fence_and_have_systemd_run_its_daemons(
    tmp_path: Path, driver: str
) -> None:
    node = Node(tmp_path, GPU_HOST, f"GSAAS_REMOTING_DRIVER={driver} STACK_USER=root")
    node.run("stack post-config")
    service = node.written(node.unit(MONITOR))["Service"]
    assert service["AmbientCapabilities"] == service["CapabilityBoundingSet"] == "CAP_NET_ADMIN"
    assert conf.load(files=[str(node.monitor_conf)]).daemons.fence
    rule = (node.root / "polkit/gsaas-monitor.rules").read_text()
    assert 'subject.user != "root"' in rule
    assert "gsaas-daemon-" in rule


def test_the_monitor_has_the_folder_that_its_configuration_names(stacked: Node) -> None:
    service = stacked.written(stacked.unit(MONITOR))["Service"]
    daemons = conf.load(files=[str(stacked.monitor_conf)]).daemons
    assert daemons.state_dir == f"/run/{service['RuntimeDirectory']}"


def test_the_interface_to_the_gpu_network_is_the_one_with_this_nodes_address(stacked: Node) -> None:
    assert conf.load(files=[str(stacked.rodvr_conf)]).rodvr.gpu_device == "lo"


def test_the_interface_to_the_gpu_network_may_be_named(tmp_path: Path) -> None:
    node = Node(tmp_path, COMPUTE_HOST, "GSAAS_GPU_DEVICE=eth1")
    node.run("stack post-config")
    assert conf.load(files=[str(node.rodvr_conf)]).rodvr.gpu_device == "eth1"


def test_an_address_that_this_node_does_not_have_ends_it_in_a_sentence(tmp_path: Path) -> None:
    node = Node(tmp_path, COMPUTE_HOST, "GSAAS_GPU_ADDRESS=192.0.2.1")
    done = node.run("stack post-config", check=False)
    assert done.returncode
    assert "no interface has the address '192.0.2.1'" in done.stderr


def test_the_monitor_finds_its_gpus_declared(tmp_path: Path) -> None:
    node = Node(
        tmp_path, GPU_HOST, "GSAAS_GPUS=3 GSAAS_GPU_MODEL='NVIDIA A2' GSAAS_GPU_MEMORY=15356"
    )
    node.run("stack post-config")
    declared = inventory.load(conf.load(files=[str(node.monitor_conf)]).monitor.inventory).host(
        "node-1"
    )
    assert (declared.gpu_address, declared.gpus) == (ADDRESS, 3)
    assert (declared.model, declared.memory_mb) == ("NVIDIA A2", 15356)


def test_an_inventory_of_ones_own_is_used_as_it_is(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU_HOST, "GSAAS_INVENTORY=/srv/gpus.toml GSAAS_REMOTING_DRIVER=lupine")
    node.run("stack post-config")
    settings = conf.load(files=[str(node.monitor_conf)])
    assert (settings.monitor.inventory, settings.remoting.driver) == ("/srv/gpus.toml", "lupine")
    assert not (node.conf.parent / "inventory.toml").exists()


@pytest.mark.parametrize("driver", ["rcuda", "lupine"])
def test_real_gpus_are_those_that_the_driver_reports(tmp_path: Path, driver: str) -> None:
    node = Node(tmp_path, GPU_HOST, f"GSAAS_REMOTING_DRIVER={driver}")
    node.run("stack post-config")
    settings = conf.load(files=[str(node.monitor_conf)])
    assert (settings.monitor.source, settings.monitor.gpu_address) == ("nvml", ADDRESS)
    assert not (node.conf.parent / "inventory.toml").exists()


def test_the_source_of_gpus_may_be_chosen(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU_HOST, "GSAAS_INVENTORY=/srv/gpus.toml GSAAS_GPU_SOURCE=simulated")
    node.run("stack post-config")
    monitor = conf.load(files=[str(node.monitor_conf)]).monitor
    assert (monitor.source, monitor.inventory) == ("simulated", "/srv/gpus.toml")


@pytest.mark.parametrize("source", ["declared", "nvidia"])
def test_a_source_that_cannot_be_used_ends_it_in_a_sentence(tmp_path: Path, source: str) -> None:
    node = Node(tmp_path, GPU_HOST, f"GSAAS_GPU_SOURCE={source}")
    done = node.run("stack post-config", check=False)
    assert done.returncode
    assert f"GSAAS_GPU_SOURCE={source}: set it to" in done.stderr


def test_the_daemons_may_be_elsewhere(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU_HOST, "GSAAS_REMOTING_DRIVER=lupine GSAAS_DAEMONS_DIR=/srv/lupine")
    node.run("stack post-config")
    assert conf.load(files=[str(node.monitor_conf)]).daemons.folder == "/srv/lupine"


def test_ggml_is_built_once_and_computes_on_this_nodes_processors(tmp_path: Path) -> None:
    node = Node(tmp_path, GPU_HOST, "GSAAS_REMOTING_DRIVER=ggml GSAAS_GPUS=3")
    pip = node.programs / "pip"
    pip.parent.mkdir(parents=True)
    pip.write_text(
        '#!/bin/sh\necho "pip $CMAKE_ARGS $*" >>"$JOURNAL"\n'
        'while [ "$1" != --target ]; do shift; done\nmkdir "$2"\n'
    )
    pip.chmod(0o755)
    node.run("stack pre-install", "stack install", "stack post-config")
    node.run("stack install")
    assert "g++" in node.did("install_package")
    (built,) = node.did("pip")
    assert "-DGGML_RPC=ON" in built
    assert built.endswith(" ggml-python==0.0.45")
    settings = conf.load(files=[str(node.monitor_conf)])
    assert (settings.remoting.driver, settings.remoting.default_kind) == ("ggml", "cpu")
    monitor = settings.monitor
    assert (monitor.source, monitor.cpu_devices, monitor.cpu_device_memory_mb) == ("cpu", 3, 1024)
    assert settings.daemons.command == (
        "{python} -m gsaas.gpu_host.servers.ggml "
        f"--libraries {tmp_path}/ggml/ggml/lib --host {{address}} --port {{port}}"
    )


def test_ggml_may_be_elsewhere(tmp_path: Path) -> None:
    local = "GSAAS_REMOTING_DRIVER=ggml GSAAS_DAEMONS_DIR=/opt/llama.cpp/bin"
    node = Node(tmp_path, GPU_HOST, local)
    node.run("stack pre-install", "stack install", "stack post-config")
    assert "g++" not in node.did("install_package")
    daemons = conf.load(files=[str(node.monitor_conf)]).daemons
    assert (daemons.folder, daemons.command) == ("/opt/llama.cpp/bin", None)


# What starts


def test_systemd_waits_until_each_service_is_ready(stacked: Node) -> None:
    for service in (API, ENGINE, RODVR, MONITOR):
        assert stacked.written(stacked.unit(service))["Service"]["Type"] == "notify"


@pytest.mark.parametrize("service", [API, ENGINE, RODVR, MONITOR])
def test_a_service_that_does_not_start_ends_it_in_a_sentence(tmp_path: Path, service: str) -> None:
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST, f"BROKEN={service}")
    done = node.run(*STACK, check=False)
    assert done.returncode
    assert f"{service} did not start: journalctl -u devstack@{service}.service" in done.stderr
    assert started(node)[-1] == service


# What Nova is told


@pytest.mark.parametrize("file", ["nova.conf", "nova_cell1.conf"])
def test_nova_tells_of_every_change_and_others_hear_what_they_heard(
    stacked: Node, file: str
) -> None:
    """The conductor of a cell reads a file of its own, and its message bus is the cell's."""
    written = stacked.written(stacked.nova_conf.with_name(file))
    assert written["notifications"] == {
        "notification_format": "both",
        "notify_on_state_change": "vm_and_task_state",
    }
    assert written["oslo_messaging_notifications"] == {
        "driver": "messagingv2",
        "transport_url": "rabbit://stackrabbit:secret@controller:5672/",
    }


def test_a_node_without_conductors_gets_no_file_of_one(tmp_path: Path) -> None:
    node = Node(tmp_path, COMPUTE_HOST)
    node.run(*STACK)
    assert not node.nova_cell_conf.exists()


def test_versioned_notifications_alone_stay_so(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER, "NOVA_NOTIFICATION_FORMAT=versioned")
    node.run("stack post-config")
    assert node.written(node.nova_conf)["notifications"]["notification_format"] == "versioned"


def test_nova_tells_of_changes_also_on_a_node_without_gsaas(tmp_path: Path) -> None:
    node = Node(tmp_path, COMPUTE_HOST, f"DISABLED_SERVICES={RODVR},{MONITOR}")
    node.run(*STACK)
    assert node.written(node.nova_conf)["notifications"]["notification_format"] == "both"
    assert not node.conf.exists()


def test_nova_fetches_vendor_data_where_plain_servers_get_cgpus(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER, "GSAAS_PLAIN_SERVERS=flavors")
    node.run("stack post-config")
    nova = node.written(node.nova_conf)
    url = "http://controller/gpu-scheduling/v1/vendordata"
    assert nova["api"] == {
        "vendordata_providers": "StaticJSON,DynamicJSON",
        "vendordata_dynamic_targets": f"cloud-init@{url}",
        "vendordata_dynamic_failure_fatal": "true",
    }
    assert nova["vendordata_dynamic_auth"]["username"] == "nova"
    assert conf.load(files=[str(node.conf)]).plain_servers.properties == "flavors"


def test_a_vm_whose_owner_names_nothing_gets_what_devstack_has(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER, "DEFAULT_IMAGE_NAME=cirros-0.6.3-x86_64-disk")
    node.run("stack post-config")
    nova = conf.load(files=[str(node.conf)]).nova
    assert nova.default_image == "cirros-0.6.3-x86_64-disk"
    assert (nova.default_flavor, nova.default_network) == ("cirros256", "private")


def test_otherwise_nova_asks_gsaas_for_nothing(stacked: Node) -> None:
    assert not {"api", "vendordata_dynamic_auth"} & set(stacked.written(stacked.nova_conf))
    assert conf.load(files=[str(stacked.conf)]).plain_servers.properties == "none"


def may_choose_a_host(policy: Path, **credentials: list[str]) -> bool:
    rules = Rules.load(policy.read_text())

    class Enforcer:
        """The part of oslo.policy's Enforcer that its checks use."""

    enforcer = Enforcer()
    enforcer.rules = rules  # type: ignore[attr-defined]
    return bool(rules[HOST_RULE]({}, {"roles": [], **credentials}, enforcer))


def test_a_service_may_choose_the_host_of_a_tenants_server_and_a_tenant_may_not(
    stacked: Node,
) -> None:
    policy = stacked.nova_policy
    assert may_choose_a_host(policy, roles=["member"], service_roles=["service"])
    assert not may_choose_a_host(policy, roles=["member"], service_roles=[])
    assert not may_choose_a_host(policy, roles=["member"])


def test_access_rules_of_others_stay(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER)
    node.nova_policy.write_text(ANOTHER_RULE)  # without an end of line
    node.run("stack post-config", "stack post-config")
    assert node.nova_policy.read_text().count(HOST_RULE) == 1
    assert set(Rules.load(node.nova_policy.read_text())) == {
        "os_compute_api:servers:create",
        HOST_RULE,
    }
    node.run("unstack")
    assert node.nova_policy.read_text() == f"{ANOTHER_RULE}\n"


def test_an_operators_own_rule_is_not_ours_to_change(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER)
    own = f'"{HOST_RULE}": "role:gpu-service"\n'
    node.nova_policy.write_text(own)
    node.run("stack post-config")
    node.run("unstack")
    assert node.nova_policy.read_text() == own


def test_the_rule_goes_where_nova_reads_its_rules(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER)
    elsewhere = tmp_path / "nova" / "rules.yaml"
    node.nova_conf.write_text("[oslo_policy]\npolicy_file = rules.yaml\n")
    node.run("stack post-config")
    assert may_choose_a_host(elsewhere, service_roles=["service"])
    assert not node.nova_policy.exists()


# What is registered and prepared


def test_keystone_knows_the_service_its_user_and_where_it_is(stacked: Node) -> None:
    assert stacked.did("create_service_user") == ["gsaas admin"]
    assert stacked.did("get_or_create_service") == [
        "gsaas gpu-scheduling GPU scheduling as a service"
    ]
    assert stacked.did("get_or_create_endpoint") == [
        "gpu-scheduling RegionOne http://controller/gpu-scheduling"
    ]


def test_the_endpoint_has_tls_where_devstack_has(tmp_path: Path) -> None:
    node = Node(tmp_path, (*CONTROLLER, "tls-proxy"))
    node.run(*STACK)
    assert node.did("get_or_create_endpoint") == [
        "gpu-scheduling RegionOne https://controller/gpu-scheduling"
    ]
    assert node.did("wait_for_service") == ["https://controller/gpu-scheduling/healthcheck"]
    settings = conf.load(files=[str(node.conf)])
    assert settings.api.public_url == "https://controller/gpu-scheduling"


def test_an_empty_database_gets_its_tables(stacked: Node) -> None:
    assert stacked.did("recreate_database") == ["gsaas"]
    assert stacked.did("gsaas-manage") == [f"--config-file {stacked.conf} db upgrade"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?charset=utf8", "?charset=utf8mb4"),
        ("?charset=utf8mb3&plugin=dbcounter", "?charset=utf8mb4&plugin=dbcounter"),
        ("?charset=utf8mb4", "?charset=utf8mb4"),
        ("?client_encoding=utf8", "?client_encoding=utf8"),
    ],
)
def test_all_of_unicode_reaches_the_database(tmp_path: Path, query: str, expected: str) -> None:
    node = Node(tmp_path, CONTROLLER, f"DATABASE_QUERY='{query}'")
    node.run("stack post-config")
    connection = engines.section(conf.load(files=[str(node.conf)])).connection
    assert connection == f"mysql+pymysql://root:secret@127.0.0.1/gsaas{expected}"


# What is removed


def test_unstack_stops_everything_and_leaves_no_vm_its_gpus(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST)
    node.run(*STACK)
    node.forget()
    node.run("unstack")
    assert node.did("stop_process") == [API, ENGINE, RODVR, MONITOR]
    assert node.did(RODVR) == [f"--config-file {node.rodvr_conf} --clean"]
    assert node.did(MONITOR) == [f"--config-file {node.monitor_conf} --clean"]
    assert node.did("remove_uwsgi_config") == [API]
    assert not list((tmp_path / "sites").iterdir())
    assert not node.nova_policy.exists()


def test_what_was_unstacked_can_be_stacked_again(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST)
    node.run(*STACK)
    first = {
        path: (tmp_path / path).read_bytes() for path in node.files() if path.startswith("etc")
    }
    node.run("unstack")
    node.run("unstack")
    node.run(*STACK)
    assert {path: (tmp_path / path).read_bytes() for path in first} == first
    assert (tmp_path / "sites" / "gsaas-api.conf").read_text() == "ProxyPass /gpu-scheduling\n"


def test_clean_leaves_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST)
    node.run(*STACK)
    node.run("unstack")
    node.run("clean")
    assert node.files() == set()
    assert not node.conf.parent.exists()


def test_a_node_that_was_never_stacked_can_be_cleaned(tmp_path: Path) -> None:
    node = Node(tmp_path, CONTROLLER + COMPUTE_HOST)
    node.run("unstack")
    node.run("clean")
    assert not node.did(RODVR)
    assert not node.did(MONITOR)
