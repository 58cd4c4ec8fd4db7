# SPDX-License-Identifier: Apache-2.0
"""The message bus inside one process."""

from tests.unit.rpc.conftest import bus as bus
