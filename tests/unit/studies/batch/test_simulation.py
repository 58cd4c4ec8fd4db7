# SPDX-License-Identifier: Apache-2.0
"""Small clusters whose events can be computed by hand, and large ones that lose no GPU."""

from __future__ import annotations

import pytest

from studies.batch import models
from studies.batch.cluster import BatchCluster
from studies.batch.jobs import BatchJob, BatchJobModel, magnitude
from studies.batch.models import GB, Work
from studies.batch.queues import FCFS, G_QUEUE, MRQ, R_QUEUE, RQ, QueueDiscipline
from studies.batch.simulation import BatchOutcome, BatchSimulation

WORK = Work(100, gpu_bytes=7 * GB)
"""101 s on GPUs of the own node."""
FAR = 100 + 2 * 1.03
"""With a GPU of another node, where the network is shared by two."""


def job(number: int, arrival: float, nodes: int, gpus: int, work: Work = WORK) -> BatchJob:
    return BatchJob(number, arrival, nodes, gpus, cpus=gpus, memory=8 * GB, work=work)


def starts_and_ends(
    queue: QueueDiscipline, *jobs: BatchJob, nodes: int = 2
) -> list[tuple[float, float]]:
    """When each job started and ended."""
    outcome = BatchSimulation(jobs, nodes, queue).run()
    return [(record.start, record.end) for record in outcome.records]


ONE_NODE_THEN_TWO = (job(0, 0, 1, 2), job(1, 0, 2, 2))
"""Scattered idle GPUs (2016: figure 1): one on each of two nodes when the second job comes."""


def test_first_come_first_served_waits_for_scattered_gpus():
    assert starts_and_ends(FCFS, *ONE_NODE_THEN_TWO) == [(0, 101), (101, 202)]


def test_a_node_of_the_g_queue_serves_one_job():
    assert starts_and_ends(G_QUEUE, job(0, 0, 1, 1), job(1, 0, 2, 1)) == [(0, 101), (101, 202)]
    assert starts_and_ends(FCFS, job(0, 0, 1, 1), job(1, 0, 2, 1)) == [(0, 101), (0, 101)]


def test_remote_gpus_let_it_start_and_run_longer():
    assert starts_and_ends(RQ, *ONE_NODE_THEN_TWO) == [(0, 101), (0, pytest.approx(FAR))]


def test_a_remote_gpu_is_left_as_soon_as_a_local_one_is_idle():
    """At 101 s the first job ends; its GPUs are on the node of the second job, which stops to migrate."""
    slow = FAR + models.record(0)
    stop = models.replay(0) + models.memsync(6 * GB)  # the GPU holds no more
    end = 101 + stop + (1 - 101 / slow) * 101
    assert starts_and_ends(MRQ, *ONE_NODE_THEN_TWO) == [(0, 101), (0, pytest.approx(end))]


def test_a_job_with_remote_gpus_is_served_before_a_waiting_one():
    """The third job needs both GPUs that the first one leaves: one of them goes to the second job."""
    waiting = job(2, 0, 2, 2)
    (_, _, (rq, _)) = starts_and_ends(RQ, *ONE_NODE_THEN_TWO, waiting)
    (_, (_, second), (mrq, _)) = starts_and_ends(MRQ, *ONE_NODE_THEN_TWO, waiting)
    assert rq == pytest.approx(FAR)
    assert mrq == pytest.approx(second)


def test_a_job_starts_on_the_least_busy_nodes():
    """RQ takes the least busy nodes for processes that need GPUs of others."""
    cluster = BatchCluster(4, models.NODE_2016)
    for process in RQ.place(cluster, job(0, 0, 3, 2)):
        cluster.add(process)
    wide, narrow = RQ.place(cluster, job(1, 0, 2, 3))
    assert (wide.node, wide.local_gpus, wide.remote_nodes) == (3, 3, [])
    assert (narrow.node, narrow.local_gpus, narrow.remote_nodes) == (0, 1, [1, 2])


def test_a_job_waits_for_cpus_and_memory_too():
    """22 GB hold two processes of 8 GB; the third waits, whatever GPU is idle."""
    starts = [
        start for start, _ in starts_and_ends(MRQ, *(job(n, 0, 1, 1) for n in range(3)), nodes=1)
    ]
    assert starts == [0, 0, 101]


def test_the_network_is_shared_as_long_as_the_other_is_there():
    """7 GB of its own at half the rate for 2 s of 101, then at the full rate."""
    talker = Work(100, net_bytes=7 * GB)
    short = Work(51)
    ends = [
        end
        for _, end in starts_and_ends(
            FCFS, job(0, 0, 1, 1, talker), job(1, 0, 1, 1, short), nodes=1
        )
    ]
    assert ends == [pytest.approx(51 + (1 - 51 / 102) * 101), pytest.approx(51)]


def test_no_job_overtakes_the_first_in_the_queue():
    wide = job(1, 1, 2, 3)
    narrow = job(2, 2, 1, 1)
    for queue in (FCFS, RQ, MRQ):
        (_, (second, _), (third, _)) = starts_and_ends(queue, job(0, 0, 1, 2), wide, narrow)
        assert second <= third


def test_a_job_that_fits_nowhere_is_an_error():
    with pytest.raises(ValueError, match="job 0 fits nowhere"):
        BatchSimulation([job(0, 0, 3, 1)], 2, MRQ).run()


@pytest.mark.parametrize("queue", [FCFS, RQ, MRQ, G_QUEUE, R_QUEUE])
def test_after_every_event_each_gpu_is_idle_or_with_one_job_and_every_job_ends_once(
    queue: QueueDiscipline,
):
    jobs = BatchJobModel(count=150, nodes=(5, 5), most_nodes=12, calls=magnitude(7)).jobs(3)

    def check(cluster: BatchCluster) -> None:
        held = [0] * len(cluster)
        for node, processes in enumerate(cluster.processes):
            for process in processes:
                if process.node == node:
                    held[node] += process.local_gpus
                held[node] += process.remote_nodes.count(node)
        for node, gpus in enumerate(cluster.idle_gpus):
            assert 0 <= gpus == cluster.node.gpus - held[node]

    outcome = BatchSimulation(jobs, 12, queue, check=check).run()
    assert [record.job for record in outcome.records] == list(range(150))
    assert all(record.arrival <= record.start < record.end for record in outcome.records)
    assert outcome.idle_gpus <= 36


def test_a_seed_decides_everything():
    def run(seed: int) -> BatchOutcome:
        return BatchSimulation(BatchJobModel(count=60).jobs(seed), 100, MRQ).run()

    assert run(1) == run(1)
    assert run(1) != run(2)
