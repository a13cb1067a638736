"""What gloo is in production: processes that meet through the coordinator and then go in step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.groups.errors import GroupLost
from disttrain.groups.meeting import Meeting
from disttrain.groups.steps import Collective
from simulation.sim_work import Place


@dataclass(slots=True)
class Formed:
    """What the processes of one incarnation share."""

    places: dict[int, Place] = field(default_factory=dict)
    given: dict[int, dict[int, Sequence[int]]] = field(default_factory=dict)
    """By round and partition."""


class SimGroup(Collective):
    """One process's side. A sum takes no time; a process that has ended is seen as such."""

    def __init__(self, place: Place, member: MemberId) -> None:
        """Returns when all processes of this incarnation have met. Raises GroupLost."""
        self._place, self._member, self._round = place, member, 0
        world = place.world
        self._formed = Formed()
        meeting = Meeting(self._ask, member, self._sleep)
        meeting.put(str(member.partition), str(place.pid).encode())
        partitions = range(world.job.spec.replicas.partitions)
        pids = tuple(int(meeting.get(str(partition))) for partition in partitions)
        if pids[member.partition] != place.pid:
            world.violations.append(f"{member} is another process to its group")
        self._formed = world.formed.setdefault(pids, self._formed)
        self._formed.places[member.partition] = place
        self._others = [world.processes[pid] for pid in pids if pid != place.pid]
        met = {other.control.member.incarnation for other in self._formed.places.values()}
        if met != {member.incarnation}:
            world.violations.append(f"{member} is in one group with incarnations {met}")

    def sum(self, values: Sequence[int], seconds: float | None = None) -> list[int]:
        del seconds
        given = self._formed.given.setdefault(self._round, {})
        given[self._member.partition] = values
        for other in self._formed.places.values():
            if other is not self._place:
                other.bell.ring()
        while len(given) <= len(self._others):
            self._sleep(1.0)
        self._formed.given.pop(self._round - 1, None)
        self._round += 1
        return [sum(column) for column in zip(*given.values(), strict=True)]

    def all_reduce(self, tensor: Tensor) -> None:
        raise NotImplementedError

    def all_gather(self, into: Tensor, own: Tensor) -> None:
        raise NotImplementedError

    def broadcast(self, tensor: Tensor) -> None:
        raise NotImplementedError

    def _ask(self, request: messages.Request) -> messages.Reply:
        return self._place.result(self._place.request(request))

    def _sleep(self, seconds: float) -> None:
        self._place.wait(seconds)
        if any(not other.is_alive for other in getattr(self, "_others", ())):
            message = f"another process of {self._member} has ended"
            raise GroupLost(message)
