# SPDX-License-Identifier: Apache-2.0
"""Execution times as formulas, with all constants of the papers.

Times are in seconds, sizes in bytes, rates in bytes per second. *count* is the number of processes that share a network
card: each gets an equal part of its bandwidth (2014: equation 1; 2016: equation 2).
"""

from __future__ import annotations

from dataclasses import dataclass

GB = 1e9


@dataclass(frozen=True)
class BatchNode:
    """The hardware of a node (2014: Table II; 2016: Table 3)."""

    cpus: int = 8
    gpus: int = 3
    memory: float = 22 * GB
    net_bandwidth: float = 7 * GB
    net_latency: float = 1.2e-6
    gpu_bandwidth: float = 7 * GB
    """Between host and GPU."""
    gpu_memory: float = 6 * GB
    """Of each GPU: TSUBAME2.5 has Tesla K20X."""
    gpu_latency: float = 10e-6
    """Of one CUDA call."""
    peer_bandwidth: float = 171 * GB
    """From GPU to GPU; only the paper of 2014 counts it."""


@dataclass(frozen=True)
class RemotingCosts:
    """What remote CUDA costs: seconds added to each call, and the factor by which a transfer takes longer."""

    latency: float
    overhead: float


NODE_2014 = BatchNode(gpu_latency=0.99e-3)
NODE_2016 = BatchNode()
RCUDA_2014 = RemotingCosts(3.47e-3, 1.09)
"""By regression over cudaMemcpy (2014: section II)."""
RCUDA_5 = RemotingCosts(50.62e-6, 1.03)
"""rCUDA 5.0 (2016: section 2.2)."""

RECORD_PER_CALL = 0.2825e-6
RECORD = 0.3437e-3
REPLAY_PER_CALL = 1.031e-6
REPLAY = 1.243
MEMSYNC_PER_BYTE = 0.057 / GB
MEMSYNC_BANDWIDTH_PER_BYTE = 47.21e3
"""A small copy runs at this much per second for each of its bytes, so none takes less than 1/47.21 ms..."""
MEMSYNC_BANDWIDTH = 4.78 * GB
"""... and a large one at this."""
MHELPER_PER_CALL = 9.983e-6
MHELPER_PER_BYTE = 0.687 / GB
MHELPER = 2.934e-3
"""mrCUDA (2016: Table 1)."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one process of a job does: its communication, and the seconds of everything else."""

    other_seconds: float
    """Computing and file I/O."""
    calls: float = 0
    """CUDA calls."""
    gpu_bytes: float = 0
    """Moved between host and GPU."""
    peer_bytes: float = 0
    """Moved from GPU to GPU."""
    connections: float = 0
    net_bytes: float = 0


def network(work: Work, node: BatchNode, count: int) -> float:
    """Return the time of the job's own network traffic (2014: equation 4; 2016: equation 10)."""
    return work.connections * node.net_latency + work.net_bytes * count / node.net_bandwidth


def local_gpu(work: Work, node: BatchNode) -> float:
    """Return the time of the communication with a GPU of the same node (2014: equation 6; 2016: equation 12)."""
    return (
        work.calls * node.gpu_latency
        + work.gpu_bytes / node.gpu_bandwidth
        + work.peer_bytes / node.peer_bandwidth
    )


def remote_gpu(work: Work, node: BatchNode, remoting: RemotingCosts, count: int) -> float:
    """Return the time of the communication with a remote GPU, over the network (2014: equation 2; 2016: equation 1)."""
    return (remoting.latency + node.net_latency) * work.calls + (
        (work.gpu_bytes + work.peer_bytes) * count / node.net_bandwidth * remoting.overhead
    )


def record(calls: float) -> float:
    """Return the time in which mrCUDA records *calls* while the GPU is remote (2016: equation 3)."""
    return RECORD_PER_CALL * calls + RECORD


def replay(calls: float) -> float:
    """Return the time in which mrCUDA replays recorded *calls* on the local GPU (2016: equation 4)."""
    return REPLAY_PER_CALL * calls + REPLAY


def memsync(size: float) -> float:
    """Return the time to copy one region of *size* bytes of GPU memory to the local GPU (2016: equations 6 and 7)."""
    if not size:
        return 0.0
    bandwidth = min(size * MEMSYNC_BANDWIDTH_PER_BYTE, MEMSYNC_BANDWIDTH)
    return MEMSYNC_PER_BYTE * size + size / bandwidth


def mhelper(work: Work) -> float:
    """Return the time that a process loses on each migrated GPU after its first one (2016: equation 5)."""
    return MHELPER_PER_BYTE * work.gpu_bytes + MHELPER_PER_CALL * work.calls + MHELPER
