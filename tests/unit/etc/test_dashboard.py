# SPDX-License-Identifier: Apache-2.0
"""Grafana should accept the dashboard, as far as can be tested without it, and Prometheus accepts its queries."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from pathlib import Path

from tests.unit.etc.test_alerts import promtool

DASHBOARD = json.loads(
    (Path(__file__).parents[3] / "etc/gsaas/grafana/gsaas.json").read_text(encoding="utf-8")
)
PANELS = DASHBOARD["panels"]
GRAPHS = [panel for panel in PANELS if panel["type"] != "row"]
COLUMNS = 24
"""Columns of Grafana's grid."""
VARIABLES = {"$__rate_interval": "5m", "$host": ".*"}
"""Variable -> what Grafana substitutes for it."""


def queries() -> list[str]:
    """Return all queries, with Grafana's variables substituted."""
    found = []
    for panel in GRAPHS:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            found.append(query)
    return found


def cells(panel: dict) -> set[tuple[int, int]]:
    """Return the cells of the grid that a panel covers."""
    at = panel["gridPos"]
    return set(
        itertools.product(
            range(at["x"], at["x"] + at["w"]),
            range(at["y"], at["y"] + at["h"]),
        )
    )


def test_panels_are_within_the_grid_and_do_not_overlap():
    covered = [cell for panel in PANELS for cell in cells(panel)]
    assert len(covered) == len(set(covered))
    assert {column for column, _ in covered} <= set(range(COLUMNS))


def test_panels_have_unique_ids_and_titles_and_known_types():
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert {panel["type"] for panel in PANELS} == {"row", "stat", "timeseries"}


def test_every_query_goes_to_the_chosen_data_source():
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    defined = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert defined.keys() == {"datasource", "host"}
    assert defined["datasource"]["query"] == "prometheus"
    for panel in GRAPHS:
        assert panel["datasource"] == chosen
        assert [target["datasource"] for target in panel["targets"]] == [chosen] * len(
            panel["targets"]
        )
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


def test_a_legend_uses_only_labels_that_its_query_keeps():
    for panel in GRAPHS:
        for target in panel["targets"]:
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            left = {
                label
                for labels in re.findall(r"by \(([^)]*)\)", target["expr"])
                for label in labels.split(", ")
            }
            assert named == left - {"le"} or not named, target


@promtool
def test_prometheus_can_parse_every_query(tmp_path):
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries())]
    file = tmp_path / "rules.json"  # JSON is YAML
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    asked = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert f"{len(rules)} rules found" in asked.stdout
