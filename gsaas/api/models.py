# SPDX-License-Identifier: Apache-2.0
"""Models: which GPUs the cloud offers, and how much of each is free. Nothing here names a GPU or a host."""

from __future__ import annotations

import dataclasses

from gsaas.api.request import ApiRequest, ApiResponse
from gsaas.objects.gpu import format_capability
from gsaas.objects.gpu_models import models_of


def index(request: ApiRequest) -> ApiResponse:
    """List the models of GPUs that new leases may get."""
    shown = [
        {
            **dataclasses.asdict(model),
            "compute_capability": format_capability(model.compute_capability),
        }
        for model in models_of(request.service.claims.gpus())
    ]
    return ApiResponse(200, {"models": shown})
