# SPDX-License-Identifier: Apache-2.0
"""The metrics agree with the database and with the responses."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy
from oslo_utils import timeutils
from prometheus_client.parser import text_string_to_metric_families

from gsaas.db import endpoints, models
from tests.api.world import World

MIB = 2**20
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "doc" / "metrics.md").read_text(encoding="utf-8")
MODEL = {"model": "Quadro M4000", "kind": "cuda"}


def scrape(world: World) -> dict[tuple[str, frozenset], float]:
    """Request the metrics as Prometheus does; return all samples by name and labels."""
    response = world.call(None, "GET", "/metrics")
    assert response.status_code == 200
    assert response.headers.getlist("Content-Type") == ["text/plain; version=0.0.4; charset=utf-8"]
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def value(world: World, name: str, **labels: str) -> float:
    """Return one sample; 0 if it has not been counted yet."""
    return scrape(world).get((name, frozenset(labels.items())), 0)


def of_gpus(world: World, column: str) -> int:
    with world.database.read() as session:
        return session.scalar(sqlalchemy.text(f"SELECT {column} FROM gpus"))


def test_leases_are_counted_by_status_as_in_the_database(world):
    for _ in range(3):
        world.launch(mode="shared", memory_mb=1000)
    ended = world.launch(count=2)
    world.engine.settle()
    world.launch(count=2)
    world.call("member", "DELETE", f"/v1/leases/{ended['id']}")
    with world.database.read() as session:
        stored = session.execute(
            sqlalchemy.text("SELECT status, count(*) FROM leases GROUP BY status")
        ).all()
    assert dict(map(tuple, stored)) == {"ACTIVE": 3, "CLAIMED": 1, "RELEASING": 1}
    told = {
        dict(labels)["status"]: n
        for (name, labels), n in scrape(world).items()
        if name == "gsaas_leases"
    }
    assert told == {
        "ACTIVE": 3,
        "CLAIMED": 1,
        "RELEASING": 1,
        "QUEUED": 0,
        "BOOTING": 0,
        "ERROR": 0,
    }
    assert value(world, "gsaas_cgpus") == 7
    world.engine.settle()
    assert value(world, "gsaas_cgpus") == 5
    assert value(world, "gsaas_leases", status="RELEASING") == 0


def test_gpus_and_their_memory_are_counted_by_model_and_kind(world):
    world.launch(mode="shared", memory_mb=1000, count=2)
    world.launch(count=1)
    world.call("admin", "PATCH", "/v1/hosts/gpu2", {"host": {"disabled": True}})
    told = scrape(world)
    model = frozenset(MODEL.items())
    assert told["gsaas_gpus", model] == of_gpus(world, "count(*)") == 8
    assert told["gsaas_gpu_memory_bytes", model] == of_gpus(world, "sum(memory_mb)") * MIB
    assert told["gsaas_gpu_memory_used_bytes", model] == of_gpus(world, "sum(used_mb)") * MIB
    assert told["gsaas_gpu_memory_used_bytes", model] == (2 * 1000 + 8192) * MIB
    assert told["gsaas_gpus_withheld", model] == 4
    assert told["gsaas_gpus_idle", model] == of_gpus(
        world, "sum(used_mb = 0 AND host_name = 'gpu1')"
    )


def test_what_is_kept_for_reservations_is_counted_and_not_idle(world):
    end = (timeutils.utcnow() + timedelta(hours=1)).isoformat() + "Z"
    cgpus = {"count": 2, "mode": "shared", "memory_mb": 1000}
    world.call(
        "member",
        "POST",
        "/v1/reservations",
        {"reservation": {"cgpus": cgpus, "end": end}},
        headers={"OpenStack-API-Version": "gpu-scheduling latest"},
    )
    told = scrape(world)
    model = frozenset(MODEL.items())
    assert told["gsaas_gpu_memory_reserved_bytes", model] == 2 * 1000 * MIB
    assert told["gsaas_gpus_idle", model] == of_gpus(world, "sum(reserved_mb = 0)") < 8


def test_a_cloud_without_gpus_has_metrics_too(tmp_path):
    world = World.build(tmp_path, hosts=0)
    assert value(world, "gsaas_cgpus") == 0
    assert value(world, "gsaas_monitor_silence_max_seconds") == 0
    world.database.close()


@pytest.mark.slow
def test_what_endpoints_report_is_added_up(world):
    binding = {"installed": True, "seconds": 0.004}
    reports = {
        "gpu1": {
            "bindings": {
                "port-1": binding | {"dropped_packets": {"unmapped": 3, "refused": 1}},
                "port-2": binding | {"dropped_packets": {"unmapped": 4, "refused": 0}},
            },
            "problems": ["gpu0 is not there"],
            "conntrack": {"entries": 64, "limit": 256},
        },
        "gpu2": {
            "bindings": {"port-3": {"installed": False}},
            "conntrack": {"entries": 192, "limit": 256},
        },
    }
    with world.database.write() as session:
        for host, report in reports.items():
            endpoints.register(session, host, report)
    assert value(world, "gsaas_bindings", state="installed") == 2
    assert value(world, "gsaas_bindings", state="pending") == 1
    assert value(world, "gsaas_dropped_packets", reason="unmapped") == 7
    assert value(world, "gsaas_dropped_packets", reason="refused") == 1
    assert value(world, "gsaas_endpoints") == 3
    assert value(world, "gsaas_endpoints_with_problems") == 1
    assert value(world, "gsaas_endpoint_conntrack_max_ratio") == 0.75


@pytest.mark.slow
def test_a_host_that_is_silent_shows_until_it_is_taken_out_of_service(world):
    assert value(world, "gsaas_gpu_hosts_silent") == 0
    hour_ago = timeutils.utcnow() - timedelta(hours=1)
    with world.database.write() as session:
        session.get(models.HostRow, "gpu2").monitor_seen_at = hour_ago
        session.get(models.EndpointRow, "gpu2").seen_at = hour_ago
    for agents, agent in (("gpu_hosts", "monitor"), ("endpoints", "endpoint")):
        assert value(world, f"gsaas_{agents}_silent") == 1
        assert value(world, f"gsaas_{agent}_silence_max_seconds") >= 3600
    world.call("admin", "PATCH", "/v1/hosts/gpu2", {"host": {"disabled": True}})
    for agents, agent in (("gpu_hosts", "monitor"), ("endpoints", "endpoint")):
        assert value(world, f"gsaas_{agents}_silent") == 0
        assert value(world, f"gsaas_{agent}_silence_max_seconds") < 3600


def test_launches_are_counted_by_policy(world):
    before = value(world, "gsaas_launches_granted_total", policy="first-fit")
    world.launch(policy="first-fit")
    world.launch(policy="first-fit")
    world.launch()
    assert value(world, "gsaas_launches_granted_total", policy="first-fit") == before + 2


@pytest.mark.parametrize(
    ("lease", "code"),
    [
        ({"cgpus": {"count": 9}}, "gsaas.capacity.impossible"),
        ({"cgpus": {"count": 1, "policy": "whatever"}}, "gsaas.policy.unknown"),
        ({"cgpus": {"count": 1}, "server": {"imageRef": "none"}}, "gsaas.server.refused"),
    ],
)
def test_refusals_are_counted_by_code(world, lease, code):
    before = value(world, "gsaas_launches_refused_total", code=code)
    assert world.call("member", "POST", "/v1/leases", {"lease": lease}).status_code >= 400
    assert value(world, "gsaas_launches_refused_total", code=code) == before + 1


@pytest.mark.slow
def test_requests_are_counted_by_route_and_timed_unless_their_client_waits(world):
    lease = world.launch()
    route = {"method": "GET", "route": "/v1/leases/{lease_id}"}

    def counted(status: str) -> tuple[float, float]:
        return (
            value(world, "gsaas_api_requests_total", status=status, **route),
            value(world, "gsaas_api_request_seconds_count", **route),
        )

    good, bad = counted("200"), counted("404")
    world.call("member", "GET", f"/v1/leases/{lease['id']}")
    assert counted("200") == (good[0] + 1, good[1] + 1)
    world.call("member", "GET", f"/v1/leases/{lease['id']}?while_status=QUEUED&timeout=0")
    assert counted("200") == (good[0] + 2, good[1] + 1)
    world.call("stranger", "GET", f"/v1/leases/{lease['id']}")
    assert counted("404") == (bad[0] + 1, good[1] + 2)
    world.call(None, "GET", "/nowhere")  # an address that is no route's counts for none


def test_what_a_lease_without_a_server_took_is_counted_as_it_is_granted(world):
    before = value(world, "gsaas_launch_phase_seconds_count", phase="claim")
    body = {"lease": {"cgpus": {"count": 8}, "server": None}}
    assert world.call("member", "POST", "/v1/leases", body).status_code == 201
    assert value(world, "gsaas_launch_phase_seconds_count", phase="claim") == before + 1


def test_each_gpu_has_metrics_if_the_operator_enables_them(tmp_path):
    world = World.build(tmp_path, settings="[api]\nmetrics_gpus = true\n")
    read_one(world)
    world.launch(mode="shared", memory_mb=1000, count=2, host="gpu1")
    gpu = {"host": "gpu1", "gpu": "GPU-0001-0", **MODEL}
    assert value(world, "gsaas_gpu_utilisation_ratio", **gpu) == 0.25
    assert value(world, "gsaas_gpu_memory_in_use_bytes", **gpu) == 512 * MIB
    assert value(world, "gsaas_gpu_memory_size_bytes", **gpu) == 8192 * MIB
    assert value(world, "gsaas_gpu_temperature_celsius", **gpu) == 61
    told = scrape(world)
    held = [n for (name, _), n in told.items() if name == "gsaas_gpu_memory_held_bytes"]
    assert (len(held), sum(held)) == (8, 2000 * MIB)
    # What a GPU does not tell is not 0.
    assert not [name for name, _ in told if name == "gsaas_gpu_power_watts"]
    world.database.close()


def read_one(world: World) -> None:
    with world.database.write() as session:
        session.add(
            models.GpuReadingRow(
                gpu_uuid="GPU-0001-0",
                at=timeutils.utcnow(),
                used_mb=512,
                utilisation=25.0,
                temperature_c=61.0,
            )
        )


def families(world: World) -> dict[str, str]:
    """Return the type of each metric, by name."""
    text = world.call(None, "GET", "/metrics").text
    return dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))


def test_the_page_of_metrics_lists_them_all_with_kinds_and_labels(tmp_path):
    world = World.build(tmp_path, settings="[api]\nmetrics_gpus = true\n")
    world.launch()
    world.engine.settle()
    row = re.compile(r"^\| `(\w+)` \| (\w+) \|(.*?)\|", re.MULTILINE)
    listed = {name: (kind, labels) for name, kind, labels in row.findall(PAGE)}
    assert {name: kind for name, (kind, _) in listed.items()} == families(world)
    for (sample, labels), _ in scrape(world).items():
        name = re.sub(r"_(bucket|sum|count)$", "", sample)
        _, told = listed.get(sample) or listed[name]
        assert {label for label, _ in labels} - {"le"} == set(re.findall(r"\w+", told)), sample
    world.database.close()


@pytest.mark.parametrize(
    "file", ["prometheus/gsaas-alerts.yml", "grafana/gsaas.json"], ids=["alerts", "dashboard"]
)
def test_the_metrics_that_alerts_and_dashboard_use_exist(tmp_path, file):
    world = World.build(tmp_path, settings="[api]\nmetrics_gpus = true\n")
    text = (ROOT / "etc" / "gsaas" / file).read_text(encoding="utf-8")
    asked = set(re.findall(r"gsaas_\w+", text))
    told = families(world)
    parts = ("bucket", "count", "sum")
    histograms = [name for name, kind in told.items() if kind == "histogram"]
    assert asked
    assert asked <= told.keys() | {f"{name}_{part}" for name in histograms for part in parts}
    world.database.close()


def test_every_metric_has_its_kind_and_a_sentence_and_follows_the_conventions(world):
    world.launch()
    world.engine.settle()
    text = world.call(None, "GET", "/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
    sampled = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        if re.sub(r"_(bucket|sum|count)$", "", name) in kinds
        else name
        for name, _ in scrape(world)
    }
    assert helps.keys() == kinds.keys()
    assert sampled <= kinds.keys()
    for name, kind in kinds.items():
        assert re.fullmatch(r"gsaas(_[a-z]+)+", name)
        assert (kind == "counter") == name.endswith("_total")
        assert helps[name].endswith(".")
        assert not re.search(r"_(ms|mb|mib|milliseconds|megabytes)$", name)


def test_no_metric_names_a_project_a_lease_a_host_or_an_address(world):
    leases = [world.launch(), world.launch(count=2)]
    world.engine.settle()
    text = world.call(None, "GET", "/metrics").text
    secrets = {name for row in world.rows()["hosts"] for name in row[:2]} | {"blue", "member"}
    secrets |= {lease[key] for lease in leases for key in ("id", "name", "project_id", "user_id")}
    secrets |= {row[0] for row in world.rows()["gpus"]}
    quoted = set(re.findall(r'"([^"]*)"', text))
    assert quoted.isdisjoint(secrets)
    assert not re.search(r"\d+\.\d+\.\d+\.\d+", text)
