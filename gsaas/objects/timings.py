# SPDX-License-Identifier: Apache-2.0
"""The phases of a launch, whose durations are stored with the lease: name -> seconds.

    gpu_selection       the policy proposes GPUs
    check               the cloud checks whether it would create the server
    queue               the request waits in the queue, if it has to
    claim               the GPUs are claimed
    creation            the cloud creates the server, until it has accepted the request
    activation          from then until the cloud reports the server as active
    deployment          from then until the lease is ACTIVE
    rodvr_configuration the compute host's endpoint installs the binding in the kernel, while the server boots

Each is measured by the process that does it; a phase that is not complete is missing.
"""

from __future__ import annotations

CHECK = "check"
GPU_SELECTION = "gpu_selection"
QUEUE = "queue"
CLAIM = "claim"
CREATION = "creation"
ACTIVATION = "activation"
DEPLOYMENT = "deployment"
RODVR_CONFIGURATION = "rodvr_configuration"

PHASES = (GPU_SELECTION, CHECK, QUEUE, CLAIM, CREATION, ACTIVATION, DEPLOYMENT, RODVR_CONFIGURATION)
"""All phases, in the order in which they begin."""
