# SPDX-License-Identifier: Apache-2.0
"""An hour of jobs on GPUs that are divided, and on GPUs that are shared."""

from __future__ import annotations

import pytest

from gsaas.gpgpums import policies
from studies.ngs import hour
from studies.ngs.hour import HourSimulation
from studies.recipes import ngs_2024


@pytest.fixture
def one_vm(monkeypatch):
    """One VM whose jobs take 100 s, use 80 % of a GPU and come without a pause."""
    monkeypatch.setattr(hour, "_USES", [0.8])
    monkeypatch.setattr(hour, "SECONDS", (100.0,))
    monkeypatch.setattr(hour, "LONGEST_PAUSE", 0.0)


def test_a_job_that_needs_more_than_its_instance_takes_longer(one_vm):
    """100 s on 28.6 % of a GPU instead of 80 %: 280 s, so 12 in an hour."""
    assert HourSimulation(1, None).run() == 12


def test_alone_on_a_gpu_a_job_takes_its_time(one_vm):
    assert (
        HourSimulation(1, policies.load("performance")).run() == 35
    )  # the 36th ends with the hour


def test_jobs_that_use_more_than_a_gpu_slow_down_alike(one_vm, monkeypatch):
    """Two that want 80 % each, on one GPU: 160 s instead of 100."""
    monkeypatch.setattr(hour, "_USES", [0.8, 0.8])
    monkeypatch.setattr(hour, "UTILISATION", ((0.8, 0.8),))
    assert HourSimulation(1, policies.load("performance")).run() == 2 * 22


def test_utilisation_is_the_mean_of_the_last_seconds():
    device = hour._Device()
    device.busy.append((100.0, 1.0))
    assert device.utilisation(105.0) == pytest.approx(50)
    assert device.utilisation(120.0) == pytest.approx(100)
    device.busy.append((120.0, 0.4))
    assert device.utilisation(122.0) == pytest.approx(88)


@pytest.mark.slow
def test_shared_gpus_get_more_done_than_divided_ones():
    mig, performance, by_utilisation = ngs_2024.rows([ngs_2024.measure(seed) for seed in (1, 2)])
    assert performance.done > mig.done
    assert by_utilisation.done > mig.done
    assert len(list(ngs_2024.claims([mig, performance, by_utilisation]))) == 2
