"""A second coordinator while the first one lives, which is what a half-lost node leaves."""

from collections.abc import Callable
from dataclasses import dataclass

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.protocol import messages
from simulation.clockwork import Clockwork, Process

TICK_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Takeover:
    """When the newer one begins, and for how long members may still reach the older one."""

    at: float
    reach_seconds: float
    is_fenced: bool = True
    """The storage lets the older one write nothing, and members do not listen to it."""


TAKEOVERS = (
    Takeover(at=1.0, reach_seconds=3.0),
    Takeover(at=2.5, reach_seconds=12.0),
    Takeover(at=6.0, reach_seconds=8.0),
)


class OldCoordinator:
    """The older one. What it would decide it cannot write, and so it ends."""

    def __init__(self, machine: Coordinator, clock: Clockwork, takeover: Takeover) -> None:
        self.process = Process()
        self.decided = 0
        """Decisions that it told somebody, though it was replaced."""
        self._machine = machine
        self._clock = clock
        self._takeover = takeover
        self._reached_until: dict[Process, float] = {}
        self._moved: set[Process] = set()
        """Who has heard the newer one."""
        self._tick()

    def is_reached_by(self, sender: Process) -> bool:
        """Whether what this process says arrives here; drawn for each."""
        if not self.process.alive:
            return False
        if sender not in self._reached_until:
            seconds = self._clock.chance.uniform(0.0, self._takeover.reach_seconds)
            self._reached_until[sender] = self._takeover.at + seconds
        return self._clock.now < self._reached_until[sender]

    def heard_newer(self, sender: Process) -> None:
        """A word of the newer one has arrived."""
        self._moved.add(sender)

    def request(
        self, request: messages.Request, sender: Process, answer: Callable[[messages.Reply], None]
    ) -> None:
        """As `SimCoordinator.request`."""
        if sender in self._moved and self._takeover.is_fenced:
            # The request says which life of the coordinator its sender has heard.
            self.process.alive = False
            return
        decision = self._machine.request(request, self._clock.now)
        if (decision.decided or decision.effects) and not self._may_go_on():
            return
        reply = decision.reply
        if reply is not None:
            self._clock.send(sender, lambda: self._deliver(sender, reply, answer))

    def _deliver(
        self, sender: Process, reply: messages.Reply, answer: Callable[[messages.Reply], None]
    ) -> None:
        if sender not in self._moved or not self._takeover.is_fenced:
            answer(reply)

    def _may_go_on(self) -> bool:
        if self._takeover.is_fenced:
            self.process.alive = False
            return False
        self.decided += 1
        return True

    def _tick(self) -> None:
        decision = self._machine.tick(self._clock.now)
        if decision.decided and not self._may_go_on():
            return
        self._clock.after(TICK_SECONDS, self.process, self._tick)
