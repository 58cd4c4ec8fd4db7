"""The message bus inside one process."""

from tests.unit.rpc.conftest import bus as bus
