# SPDX-License-Identifier: Apache-2.0
"""How each middleware's daemons are started, and which configurations are refused at the start."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gsaas.conf
from gsaas.objects.daemon import Daemon
from gsaas.remoting import base

SHARED = Daemon("GPU-7", 20001, 2048, "lease-1", 1)
WHOLE = Daemon("GPU-7", 20001, None, "lease-1", 1)


def load(name: str, **settings: object) -> base.RemotingDriver:
    conf = gsaas.conf.load(files=[])
    for option, value in settings.items():
        conf.set_override(option, value, group="daemons")
    return base.load(name, conf)


def command(name: str, daemon: Daemon = WHOLE, **settings: object):
    return load(name, **settings).daemon_settings.command(daemon, "gpu1", "192.0.2.7")


def test_rcuda_starts_in_its_own_folder_on_its_own_gpu():
    made = command("rcuda")
    assert made.argv == ("./rCUDAd", "-i", "-p", "20001", "-n", "64")
    assert made.folder == "/opt/rCUDA/bin"
    assert made.environment == {"CUDA_VISIBLE_DEVICES": "GPU-7"}


def test_lupine_is_told_its_port_and_its_gpu_by_environment():
    made = command("lupine")
    assert made.argv == ("./lupine_driver_server",)
    assert made.environment == {
        "LUPINE_PORT": "20001",
        "LUPINE_LOG_LEVEL": "error",
        "CUDA_VISIBLE_DEVICES": "GPU-7",
    }


BOTH = replace(SHARED, position=0, other_gpus=("GPU-8",))
"""One daemon for two cGPUs of a lease."""


def test_lupine_serves_all_gpus_of_its_daemon_and_each_has_its_limit():
    made = command("lupine", BOTH)
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "GPU-7,GPU-8"
    assert made.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2048M,1=2048M"


def test_several_gpus_are_not_limited_by_the_mps_control_daemons_of_each():
    folder = {"mps_pipe_directory": "/run/nvidia-mps/{gpu_uuid}"}
    assert command("lupine", SHARED, **folder).mps_pipe_directory == "/run/nvidia-mps/GPU-7"
    with pytest.raises(ValueError, match="takes one MPS control daemon for all of them"):
        command("lupine", BOTH, **folder)
    assert command("lupine", replace(BOTH, memory_mb=None), **folder), "whole GPUs have no limit"
    assert command("lupine", BOTH, memory_limit="none", **folder)


def test_a_daemon_of_several_cpu_devices_may_have_all_their_shares():
    daemon = replace(SHARED, gpu_uuid="CPU-7", other_gpus=("CPU-8",))
    assert command("tvm", daemon).host_memory_mb == 2 * 2048 + 160


def test_ggml_is_told_its_address_and_its_gpu():
    made = command("ggml")
    assert made.argv == ("./rpc-server", "--host", "192.0.2.7", "--port", "20001")
    assert made.environment == {"CUDA_VISIBLE_DEVICES": "GPU-7", "GGML_NO_BACKTRACE": "1"}


def test_tvm_is_served_by_a_server_that_outlives_its_clients():
    made = command("tvm")
    assert made.argv[1:] == (
        *("-m", "gsaas.gpu_host.servers.tvm", "--host", "192.0.2.7", "--port", "20001"),
    )


@pytest.mark.parametrize(("driver", "own_mb"), [("ggml", 128), ("tvm", 160)])
def test_the_daemon_of_a_cpu_device_may_have_its_share_and_what_it_needs_itself(driver, own_mb):
    made = command(driver, replace(SHARED, gpu_uuid="CPU-7"))
    assert made.host_memory_mb == 2048 + own_mb
    assert not [name for name in made.environment if "MPS" in name]
    assert made.required_files == ()
    assert command(driver, SHARED).host_memory_mb is None


@pytest.mark.parametrize(
    ("driver", "life"),
    [
        ("rcuda", "per-gpu"),
        ("lupine", "per-lease"),
        ("simulated", "per-gpu"),
        ("ggml", "per-lease"),
        ("tvm", "per-lease"),
    ],
)
def test_each_driver_has_a_usual_life(driver, life):
    assert load(driver).daemon_settings.life == life
    assert load(driver, life="operator").daemon_settings.life == "operator"


def test_only_daemons_of_single_cgpus_take_ports_from_the_range():
    assert load("rcuda").daemon_ports == {}
    ports = load("rcuda", life="per-lease", lease_ports="21000-21009").daemon_ports
    assert {name: str(each) for name, each in ports.items()} == {"rcuda": "21000-21009"}


def test_mps_limits_a_share_and_needs_its_control_daemon():
    made = command("lupine", SHARED, mps_pipe_directory="/run/mps/{gpu_uuid}")
    assert made.environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=2048M"
    assert made.environment["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps/GPU-7"
    assert made.required_files == ("/run/mps/GPU-7/control",)


def test_a_whole_gpu_has_no_limit():
    made = command("lupine", WHOLE)
    assert not [name for name in made.environment if "MPS" in name]
    assert made.required_files == ()


def test_a_library_limits_a_share_and_each_daemon_has_an_account_of_its_own():
    settings = {"memory_limit": "library", "limit_library": "/opt/hami/libvgpu.so"}
    made = command("lupine", SHARED, **settings)
    assert made.environment["LD_PRELOAD"] == "/opt/hami/libvgpu.so"
    assert made.environment["CUDA_DEVICE_MEMORY_LIMIT"] == "2048m"
    assert made.environment["CUDA_DEVICE_MEMORY_SHARED_CACHE"] == "/tmp/lease-1-1.limit"  # noqa: S108
    assert made.required_files == ("/opt/hami/libvgpu.so",)


def test_the_simulated_one_computes_nothing_so_nothing_is_limited():
    made = command("simulated", SHARED)
    assert made.required_files == ()
    assert made.argv[1:] == (
        *("-m", "gsaas.standalone.simulated_middleware", "--gpu", "GPU-7", "--host", "gpu1"),
        *("--listen", "192.0.2.7:20001"),
    )
    assert not load("simulated").daemon_settings.own_devices


def test_operators_words_go_before_the_drivers_and_a_value_is_never_two_words():
    made = command("rcuda", command="nice '{folder}/my daemon' --on={gpu_uuid}", folder="/srv/a b")
    assert made.argv == ("nice", "/srv/a b/my daemon", "--on=GPU-7")
    assert made.folder == "/srv/a b"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": "d --port={prot}"}, "{prot} is not known; known are .*{port}"),
        ({"command": "d {port"}, r"\[daemons\]command cannot be filled in"),
        ({"command": "d {port.real}"}, "not known"),
        ({"command": "d {port!r}"}, "not known"),
        ({"command": "d 'x"}, "cannot be split"),
        ({"command": "  "}, "rCUDAd|empty"),
        ({"environment": {"A": "{nothing}"}}, "environment variable A"),
        ({"memory_limit": "library"}, "limit_library does not say"),
        ({"lease_ports": "8000-9000"}, "contain 8308"),
        ({"lease_ports": "many"}, "not a range"),
    ],
)
def test_what_cannot_be_filled_in_is_found_at_the_start(settings, said):
    with pytest.raises(ValueError, match=said):
        load("rcuda", **settings)
