# SPDX-License-Identifier: Apache-2.0
"""What usage costs by the operator's prices."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gsaas.objects.gpu import Gpu
from gsaas.objects.prices import Prices, hours_by_model, models_text

A100 = Gpu("GPU-1", "gpu1", 0, 40960, model="NVIDIA A100-SXM4-40GB")
H100 = Gpu("GPU-2", "gpu2", 0, 81920, model="NVIDIA H100 80GB HBM3")
CORES = Gpu("CPU-gpu1/0", "gpu1", 1, 4096, model="AMD EPYC 7543")
PRICES = Prices.read({A100.model: "2.50", H100.model: " 4.75", "cpu": "0.05"}, "EUR")


@pytest.mark.parametrize(
    ("hours", "cost"),
    [
        ({A100.model: 1.0}, "2.50"),
        ({A100.model: 0.1}, "0.25"),
        ({A100.model: 0.002}, "0.01"),  # half a cent, as floating-point numbers are not
        ({A100.model: 10.0, H100.model: 2.0, "cpu": 100.0}, "39.50"),
        ({A100.model: 1e6 + 0.1}, "2500000.25"),
        ({"Quadro M4000": 5.0}, "0.00"),
        ({}, "0.00"),
    ],
)
def test_a_cost_is_exact_to_the_cent(hours: dict[str, float], cost: str):
    assert PRICES.cost(hours) == Decimal(cost)
    assert str(PRICES.cost(hours)) == cost


def test_hours_of_models_without_a_price_are_told_apart():
    assert PRICES.unpriced({A100.model: 1.0, "Quadro M4000": 5.0, "": 0.5}) == 5.5


@pytest.mark.parametrize("text", ["", "free", "-1", "nan", "inf", "1,5", "1e12"])
def test_what_is_no_price_is_refused_with_the_model(text: str):
    with pytest.raises(ValueError, match=r"prices has .* for A100, which is no price"):
        Prices.read({"A100": text})


def test_without_prices_there_are_no_costs():
    assert not Prices.read({})
    assert PRICES


def test_the_hours_of_a_lease_are_those_of_its_models_by_their_parts():
    """A share is a part of a GPU, so equal shares of larger GPUs are less of them."""
    assert hours_by_model(6.0, models_text([(A100, 20480), (A100, 20480)])) == {A100.model: 6.0}
    mixed = models_text([(H100, 40960), (A100, 40960)])
    found = hours_by_model(6.0, mixed)
    assert found == pytest.approx({A100.model: 4.0, H100.model: 2.0}, rel=1e-5)
    assert mixed == models_text([(A100, 40960), (H100, 40960)])


def test_any_cpu_device_has_the_price_of_cpu():
    assert hours_by_model(2.0, models_text([(CORES, 256)])) == {"cpu": 2.0}


def test_a_lease_from_before_models_were_stored_has_hours_without_a_model():
    assert hours_by_model(2.0, None) == {"": 2.0}
