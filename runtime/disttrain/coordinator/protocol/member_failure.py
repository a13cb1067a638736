"""How a member whose error no restart heals tells the coordinator, if no launcher does."""

from concurrent.futures import wait

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.client import CoordinatorClient
from disttrain.errors import FinalError
from disttrain.launch.config import LaunchConfig
from disttrain.transport.factory import open_transport

_LONGEST = 32_000
"""Characters; the coordinator takes 65,536 in a text."""


def report(config: LaunchConfig, error: FinalError) -> None:
    """Have the job end as Failed; returns when the coordinator has decided that, however late."""
    settings = config.transport_config
    transport = open_transport(settings)
    client = CoordinatorClient(lambda: transport.connect(config.coordinator_address), settings.role)
    message = f"{config.place or config.process}: {error or type(error).__name__}"[:_LONGEST]
    fail = messages.Fail(reason=messages.reason_of(type(error).__name__), message=message)
    try:
        wait([client.request(fail)])
    finally:
        client.close()
        transport.close()
