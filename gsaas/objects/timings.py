"""The phases of a launch, as stored on its lease: name -> seconds.

    gpu_selection       a policy proposes GPUs
    check               the cloud is asked whether it would make the server
    queue               it waits for its turn, if it has to
    claim               from asking for the GPUs until they are taken
    creation            the cloud is asked to make the server, until it has said so
    activation          from there until it says that the server is active
    deployment          from there until the lease is ACTIVE
    rodvr_configuration the compute host's endpoint puts the binding into the kernel, while the server boots

Each is measured where it happens; a phase that has not happened yet is missing.
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
"""In the order in which they begin."""
