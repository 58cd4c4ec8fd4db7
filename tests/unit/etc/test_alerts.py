# SPDX-License-Identifier: Apache-2.0
"""Alerts fire when they should and not before, as promtool of Prometheus finds, where it is installed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "etc/gsaas/prometheus/gsaas-alerts.yml"
GUIDE = (ROOT / "doc/operator-guide.md").read_text(encoding="utf-8")
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}
WELL = {
    'gsaas_leases{status="ACTIVE"}': "3x180",
    'gsaas_leases{status="ERROR"}': "2x180",  # old ones, which nobody has acknowledged
    'gsaas_leases{status="RELEASING"}': "0 1 0 1x30 0x180",  # now and then
    'gsaas_api_requests_total{status="200"}': "0+100x180",
    'gsaas_api_requests_total{status="503"}': "0+1x180",
    'gsaas_api_request_seconds_bucket{le="2.5"}': "0+100x180",
    'gsaas_api_request_seconds_bucket{le="+Inf"}': "0+101x180",
    "gsaas_gpu_hosts_silent": "0x80 1x3 0x100",  # while it was updated
    "gsaas_endpoint_conntrack_max_ratio": "0.3x180",
    "gsaas_leases_degraded": "0x80 1x3 0x100",
    'gsaas_daemons{state="down"}': "0x80 1x3 0x100",
    'gsaas_daemons{state="healthy"}': "9x180",
    "gsaas_daemon_restarts": "7x180",
    'gsaas_bindings{state="pending"}': "0x80 1x5 0x100",
    'gsaas_dropped_packets{reason="unmapped"}': "0+1x180",
    "gsaas_queue_wait_max_seconds": "0+10x180",
    'gsaas_launches_refused_total{code="gsaas.capacity.busy"}': "0+5x180",
    'gsaas_grants_shown_total{outcome="redeemed"}': "0+5x180",
    'gsaas_gpu_temperature_celsius{gpu="GPU-a",host="gpu1"}': "85x180",
}
"""Series of a healthy cloud, minute by minute."""

UNHEALTHY = {
    "GsaasApiDown": {name: None for name in WELL if name.startswith("gsaas_leases{")},
    "GsaasApiErrorRateHigh": {'gsaas_api_requests_total{status="503"}': "0+10x180"},
    "GsaasApiLatencyHigh": {
        'gsaas_api_request_seconds_bucket{le="5"}': "0+120x180",
        'gsaas_api_request_seconds_bucket{le="+Inf"}': "0+120x180",
    },
    "GsaasGpuHostDown": {"gsaas_gpu_hosts_silent": "0x80 1x100"},
    "GsaasComputeHostDown": {"gsaas_endpoints_silent": "0x80 1x100"},
    "GsaasGpuHostProblem": {"gsaas_gpu_hosts_with_problems": "0x80 1x100"},
    "GsaasGpuDisputed": {"gsaas_gpus_disputed": "0x80 1x100"},
    "GsaasDifferences": {'gsaas_differences{kind="gpu-count"}': "0x80 1x100"},
    "GsaasEndpointProblem": {"gsaas_endpoints_with_problems": "0x80 1x100"},
    "GsaasConntrackTableFull": {"gsaas_endpoint_conntrack_max_ratio": "0.3x80 0.9x100"},
    "GsaasLeasesDegraded": {"gsaas_leases_degraded": "0x80 1x100"},
    "GsaasDaemonsDown": {'gsaas_daemons{state="unresponsive"}': "0x80 1x100"},
    "GsaasDaemonsCrashLooping": {"gsaas_daemon_restarts": "7x80 8+1x100"},
    "GsaasBindingsPending": {'gsaas_bindings{state="pending"}': "0x70 1x110"},
    "GsaasPacketsDropped": {'gsaas_dropped_packets{reason="unmapped"}': "0+100x180"},
    "GsaasLaunchesFail": {'gsaas_leases{status="ERROR"}': "2x80 3x100"},
    "GsaasReleasesStuck": {'gsaas_leases{status="RELEASING"}': "0x10 1x170"},
    "GsaasQueueWaitLong": {"gsaas_queue_wait_max_seconds": "0+60x180"},
    "GsaasClaimsConflict": {
        'gsaas_launches_refused_total{code="gsaas.claim.conflict"}': "0x60 0+1x120"
    },
    "GsaasGrantsAbused": {'gsaas_grants_shown_total{outcome="forged"}': "0x80 0+2x100"},
    "GsaasGpuTemperatureHigh": {
        'gsaas_gpu_temperature_celsius{gpu="GPU-a",host="gpu1"}': "85x70 95x110"
    },
}
"""Alert -> the series that differ when it must fire."""

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (Debian: prometheus) is not installed"
)


def group(name: str, different: dict[str, str | None], firing: list[str]) -> dict:
    """Return a test for promtool: with these series exactly these alerts fire after 90 minutes."""
    series = {name: values for name, values in (WELL | different).items() if values is not None}
    fires = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in firing]
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "90m",
                "exp_samples": fires,
            }
        ],
    }


@pytest.mark.slow
@promtool
def test_each_alert_fires_when_it_should_and_none_in_a_healthy_cloud(tmp_path):
    assert UNHEALTHY.keys() == RULES.keys()
    tests = [group("healthy", {}, [])]
    tests += [group(alert, different, [alert]) for alert, different in UNHEALTHY.items()]
    file = tmp_path / "tests.json"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(ALERTS)], "tests": tests}))
    process = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr + process.stdout


def test_each_alert_has_a_severity_a_summary_and_a_description():
    for rule in RULES.values():
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert all(text.endswith(".") for text in rule["annotations"].values())


def test_the_operators_guide_explains_each_alert():
    explained = re.findall(r"^\| `(Gsaas\w+)` \| .+ \| .+ \|$", GUIDE, re.MULTILINE)
    assert explained == list(RULES)
