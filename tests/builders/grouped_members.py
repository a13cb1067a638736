"""Members of replicas of several processes, for the coordinator's machine."""

from typing import Any

from builders.control_members import a_join
from disttrain.coordinator.protocol import messages
from disttrain.transport.header import Role


def a_member(
    partition: int, instance: str, *, index: int = 0, partitions: int = 2, **more: Any
) -> messages.Join:
    """What a process of a replica says first. Only the first one has a model and data."""
    if partition:
        more = {"layout": None, "train_samples": None, "test_samples": None} | more
    return a_join(Role.REPLICA, index, instance, partition=partition, partitions=partitions, **more)
