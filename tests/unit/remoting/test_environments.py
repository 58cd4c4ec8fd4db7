# SPDX-License-Identifier: Apache-2.0
"""What each middleware's clients are told."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from gsaas.cloudinit import environment
from gsaas.conf import daemons
from gsaas.conf import remoting as options
from gsaas.exceptions import RemotingLimit
from gsaas.objects.address import Address
from gsaas.objects.request import Request
from gsaas.remoting import base
from gsaas.remoting.base import ClientDevice


def load(name: str, life: str | None = None, **settings: object) -> base.RemotingDriver:
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    daemons.register_opts(conf)
    conf([])
    conf.set_override("life", life, group="daemons")
    for option, value in settings.items():
        conf.set_override(option, value, group="remoting")
    return base.load(name, conf)


def devices(count: int, port: int, memory_mb: int | None = None) -> list[ClientDevice]:
    return [ClientDevice(Address(f"169.254.71.{1 + i}", port), memory_mb) for i in range(count)]


def test_rcuda_in_exclusive_mode():
    env = load("rcuda").environment("lease-1", devices(2, 8308))

    assert list(env.items()) == [
        ("RCUDA_DEVICE_COUNT", "2"),
        ("RCUDA_DEVICE_0", "169.254.71.1:0"),
        ("RCUDA_DEVICE_1", "169.254.71.2:0"),
        ("LD_LIBRARY_PATH", "/opt/rCUDA/lib"),
    ]


def test_rcuda_in_shared_mode_on_another_port():
    env = load("rcuda").environment("lease-1", devices(2, 9000, memory_mb=2048))

    assert list(env.items()) == [
        ("RCUDA_DEVICE_COUNT", "2"),
        ("RCUDA_DEVICE_0", "169.254.71.1@9000:0"),
        ("RCUDA_RESERVED_GPU_MEMORY_0", "2048"),
        ("RCUDA_DEVICE_1", "169.254.71.2@9000:0"),
        ("RCUDA_RESERVED_GPU_MEMORY_1", "2048"),
        ("LD_LIBRARY_PATH", "/opt/rCUDA/lib"),
    ]


def test_lupine():
    env = load("lupine", several_daemons=True).environment(
        "lease-1", devices(2, 14833, memory_mb=2048)
    )

    assert list(env.items()) == [
        ("LUPINE_SERVER", "169.254.71.1:14833,169.254.71.2:14833"),
        ("LUPINE_SESSION", "lease-1"),
        ("LUPINE_DISABLE_LOCAL", "1"),
        ("LUPINE_LOG_LEVEL", "error"),
        ("LD_LIBRARY_PATH", "/opt/lupine/lib"),
    ]


def test_lupine_names_the_one_daemon_of_a_lease_once():
    """A server shows all devices that it has: named twice, it would show each of them twice."""
    both = [
        ClientDevice(Address(f"169.254.71.{1 + number}", 14833), 2048, number=number)
        for number in range(2)
    ]
    assert load("lupine").environment("lease-1", both)["LUPINE_SERVER"] == "169.254.71.1:14833"


def test_rcuda_numbers_the_devices_of_one_daemon():
    one = Address("192.0.2.1", 20000)
    env = load("rcuda").environment(
        "l", [ClientDevice(one, None), ClientDevice(one, None, number=1)]
    )
    assert (env["RCUDA_DEVICE_0"], env["RCUDA_DEVICE_1"]) == (
        "192.0.2.1@20000:0",
        "192.0.2.1@20000:1",
    )


def test_lupine_takes_seven_and_says_why_no_more():
    driver = load("lupine", several_daemons=True)
    assert driver.adapt(Request(7)) == Request(7), "several daemons may be anywhere"
    assert driver.environment("lease-1", devices(7, 14833))["LUPINE_SERVER"].count(",") == 6

    for refuse in (
        lambda: driver.environment("lease-1", devices(8, 14833)),
        lambda: driver.adapt(Request(8)),
    ):
        with pytest.raises(RemotingLimit) as refusal:
            refuse()
        assert str(refusal.value) == (
            "lupine gives a program at most 7 cGPUs, and you asked for 8: "
            "its client has address space for no more, and silently drops the rest"
        )


def test_one_daemon_serves_all_cgpus_that_lupine_gives_a_lease():
    """Two daemons that return the same device pointer would make its client mix up their data."""
    driver = load("lupine")
    assert driver.adapt(Request(1)) == Request(1)
    assert driver.adapt(Request(2)) == Request(2, one_daemon=True)
    with pytest.raises(RemotingLimit, match=r"at most 7 cGPUs, and you asked for 8"):
        driver.adapt(Request(8))
    with pytest.raises(RemotingLimit, match=r"you asked for 2: on different hosts they would need"):
        driver.adapt(Request(2, hosts="spread"))


@pytest.mark.parametrize("life", ["per-gpu", "operator"])
def test_lupine_gives_a_lease_one_cgpu_where_each_gpu_has_its_daemon(life):
    driver = load("lupine", life)
    assert driver.adapt(Request(1)) == Request(1)
    with pytest.raises(
        RemotingLimit, match=r"at most 1 cGPUs, and you asked for 2: .*device pointer"
    ):
        driver.adapt(Request(2))
    assert load("lupine", life, several_daemons=True).adapt(Request(2)) == Request(2)
    before_the_update = driver.environment("lease-1", devices(2, 14833))
    assert before_the_update["LUPINE_SERVER"].count(",") == 1, "leases that there are stay usable"


def test_ggml_lists_the_servers_in_the_variable_that_llama_cpp_reads():
    env = load("ggml").environment("lease-1", devices(2, 50052, memory_mb=2048))

    assert list(env.items()) == [
        ("LLAMA_ARG_RPC", "169.254.71.1:50052,169.254.71.2:50052"),
        ("LD_LIBRARY_PATH", "/opt/llama.cpp/lib"),
    ]


def test_ggml_gives_a_program_sixteen_cgpus_at_most():
    assert load("ggml").adapt(Request(16)) == Request(16)
    with pytest.raises(RemotingLimit, match="at most 16 cGPUs, and you asked for 17"):
        load("ggml").adapt(Request(17))


def test_tvm_names_one_server_in_each_variable():
    env = load("tvm").environment("lease-1", devices(2, 9090))

    assert env == {
        "TVM_RPC_SERVER_0": "169.254.71.1:9090",
        "TVM_RPC_SERVER_1": "169.254.71.2:9090",
    }


def test_simulated_says_what_rcuda_says_and_needs_no_library():
    env = load("simulated").environment("lease-1", devices(1, 8308, memory_mb=512))

    assert env == {
        "RCUDA_DEVICE_COUNT": "1",
        "RCUDA_DEVICE_0": "169.254.71.1:0",
        "RCUDA_RESERVED_GPU_MEMORY_0": "512",
    }


@pytest.mark.parametrize("name", ["ggml", "lupine", "rcuda", "simulated", "tvm"])
def test_every_driver_makes_an_environment_that_every_reader_can_carry(name: str):
    driver = load(name, library_path="/opt/odd 'path'")
    most = driver.max_devices or 100

    env = driver.environment("7d2a9e3c", devices(most, driver.default_port, memory_mb=1))

    environment.validate(env)
    assert driver.name == name


def test_the_operator_moves_or_drops_the_library_folder():
    moved = load("rcuda", library_path="/usr/lib/rcuda").environment("l", devices(1, 8308))
    dropped = load("rcuda", library_path="").environment("l", devices(1, 8308))

    assert moved["LD_LIBRARY_PATH"] == "/usr/lib/rcuda"
    assert "LD_LIBRARY_PATH" not in dropped


def test_the_operator_adds_variables_and_may_change_a_setting():
    rcuda = load("rcuda", extra_environment={"RCUDAPROTO": "TCP"})
    lupine = load("lupine", extra_environment={"LUPINE_LOG_LEVEL": "debug"})

    assert rcuda.environment("l", devices(1, 8308))["RCUDAPROTO"] == "TCP"
    assert lupine.environment("l", devices(1, 14833))["LUPINE_LOG_LEVEL"] == "debug"


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("rcuda", "RCUDA_DEVICE_COUNT"),
        ("rcuda", "RCUDA_DEVICE_7"),
        ("simulated", "RCUDA_RESERVED_GPU_MEMORY_0"),
        ("lupine", "LUPINE_SERVER"),
        ("lupine", "LD_LIBRARY_PATH"),
        ("ggml", "LLAMA_ARG_RPC"),
        ("tvm", "TVM_RPC_SERVER_0"),
    ],
)
def test_the_operator_may_not_say_where_the_gpus_are(driver: str, name: str):
    with pytest.raises(ValueError, match=f"may not set {name}"):
        load(driver, extra_environment={name: "x"})


def test_what_no_server_could_read_is_refused_before_any_lease():
    with pytest.raises(ValueError, match="NOTE contains '#'"):
        load("rcuda", extra_environment={"NOTE": "a # b"})
    with pytest.raises(ValueError, match="LD_LIBRARY_PATH contains"):
        load("rcuda", library_path="/opt/a\n/b")


def test_a_lease_has_devices():
    with pytest.raises(ValueError, match="lease-1"):
        load("rcuda").environment("lease-1", [])


def test_two_cgpus_of_one_gpu_may_have_one_real_address():
    env = load("rcuda").environment("lease-1", devices(1, 8308, memory_mb=1024) * 2)

    assert env["RCUDA_DEVICE_COUNT"] == "2"
    assert env["RCUDA_DEVICE_0"] == env["RCUDA_DEVICE_1"] == "169.254.71.1:0"


def on_gpus(*uuids: str, memory_mb: int | None = None) -> list[ClientDevice]:
    return [ClientDevice(Address("192.0.2.1", 8308), memory_mb, uuid) for uuid in uuids]


def test_native_names_the_gpus_to_cuda():
    env = load("native").environment("lease-1", on_gpus("GPU-b", "GPU-a"))

    assert env == {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}


def test_native_limits_each_gpu_to_what_the_lease_has_of_it():
    env = load("native").environment("lease-1", on_gpus("GPU-b", "GPU-a", "GPU-b", memory_mb=512))

    assert env == {
        "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1024M,1=512M",
    }


def test_native_leaves_out_what_is_set_for_clients_of_the_middleware():
    driver = load("native", library_path="/opt/rCUDA/lib", extra_environment={"RCUDAPROTO": "TCP"})

    assert list(driver.environment("lease-1", on_gpus("GPU-a"))) == ["CUDA_VISIBLE_DEVICES"]


def test_an_unknown_driver_is_refused_with_those_that_are_known():
    with pytest.raises(
        ValueError, match=r"no remoting driver 'cuda'.*ggml, lupine, native, rcuda, simulated, tvm"
    ):
        load("cuda")


def test_a_consumer_is_told_which_version_the_daemons_have():
    """A client of another version may hang without a message."""
    address = Address("169.254.71.1", 14833)
    known = ClientDevice(address, 1024, middleware="7fbd364")
    environment_of = load("lupine").environment
    assert environment_of("l", [known])["GSAAS_MIDDLEWARE_VERSION"] == "7fbd364"
    assert "GSAAS_MIDDLEWARE_VERSION" not in environment_of("l", [ClientDevice(address, 1024)])
