# SPDX-License-Identifier: Apache-2.0
"""The kinds of devices that cGPUs are shares of. The UUID of a device begins with its kind."""

from __future__ import annotations

import re

CUDA, CPU = "cuda", "cpu"
"""A GPU of NVIDIA, or a MIG instance of one; or cores and memory of a host that compute as a device."""
KINDS = (CUDA, CPU)
CPU_PREFIX = "CPU-"
UUID = re.compile(r"(GPU|MIG|CPU)-[0-9A-Za-z./-]{1,92}")
"""What a UUID is: NVML's of a GPU or of a MIG instance, or that of a CPU device."""


def is_uuid(text: object) -> bool:
    """Return whether *text* can be the UUID of a device."""
    return isinstance(text, str) and UUID.fullmatch(text) is not None


def kind_of(uuid: str) -> str:
    """Return the kind of the device with this UUID."""
    return CPU if uuid.startswith(CPU_PREFIX) else CUDA
