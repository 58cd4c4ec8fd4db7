# SPDX-License-Identifier: Apache-2.0
"""What the CUDA program makes of libraries that lack something."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gsaas.prove import program


@pytest.mark.parametrize(
    "library",
    [
        SimpleNamespace(),
        SimpleNamespace(cuDeviceGetUuid=lambda *_: 801, cuGetErrorName=lambda *_: 1),
        SimpleNamespace(cuDeviceGetUuid=lambda *_: 0),
    ],
    ids=["no function", "an error", "zeros"],
)
def test_a_middleware_that_does_not_tell_the_uuid_of_its_gpu_is_no_error(monkeypatch, library):
    library.cuInit = lambda _flags: 0
    monkeypatch.setattr("ctypes.CDLL", lambda _name: library)
    assert program.Driver().uuid(0) is None
