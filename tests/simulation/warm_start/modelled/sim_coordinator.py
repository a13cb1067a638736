"""The real machine in a process that can be killed before or after any line of its journal."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from disttrain.coordinator.decisions import news
from disttrain.coordinator.decisions.machine import Coordinator, Decision
from disttrain.coordinator.decisions.turn import BeginCheckpoint, CommitCheckpoint, Effect, Places
from disttrain.coordinator.journal import entries
from disttrain.coordinator.journal.entries import Decided, Entry
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.orders import NumberedOrder
from disttrain.transport.header import Role
from simulation.clockwork import Process
from simulation.warm_start.modelled.world import World

TICK_SECONDS = 0.25

Answer = Callable[[messages.Reply], None]


class Listening(Protocol):
    """What a member's connection brings it unasked."""

    def take_orders(self, orders: tuple[NumberedOrder, ...]) -> None: ...

    def heard(self, reply: messages.HeartbeatReply) -> None: ...


class Killed(Exception):
    """The process ends here."""


class SimCoordinator:
    """All lives of the coordinator; the journal survives them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.journal: list[Decided] = []
        self.process = Process()
        self.die_at: int | None = None
        """Length of the journal at which it is killed, before or after its next line."""
        self.restarts = 0
        self._routes: dict[MemberId, tuple[Process, Listening]] = {}
        self._told: dict[Role, int] = {}
        """Epochs."""
        self._pushed: set[int] = set()
        self.machine = self._machine(State())
        self._tick()

    @property
    def state(self) -> State:
        return self.machine.state

    def request(self, request: messages.Request, sender: Process, answer: Answer) -> None:
        """A request arrives; the answer goes back over the network."""
        clock = self.world.clock
        try:
            decision = self.machine.request(request, clock.now)
            self._settle(decision)
        except Killed:
            self._restart()
            return
        reply = decision.reply
        if reply is not None:
            self._say(sender, partial(answer, reply))
        self._push_orders()

    def _say(self, to: Process, said: Callable[[], None]) -> None:
        self.world.clock.send(to, said)

    def listen(self, member: MemberId, process: Process, listening: Listening) -> None:
        """A member's connection, for what is said unasked."""
        self._routes[member] = (process, listening)

    def entries(self) -> list[Entry]:
        return [entry for decided in self.journal for entry in decided]

    def _machine(self, state: State) -> Coordinator:
        places = Places(model_file="model", staging=str, checkpoint=str)
        return Coordinator(state, self.world.stages, places)

    def _tick(self) -> None:
        try:
            self._settle(self.machine.tick(self.world.clock.now))
        except Killed:
            self._restart()
            return
        self._push_orders()
        self.world.clock.after(TICK_SECONDS, self.process, self._tick)

    def _settle(self, decision: Decision) -> None:
        if decision.decided:
            dies = len(self.journal) == self.die_at
            if not dies or self.world.clock.chance.random() < 0.5:
                self.journal.append(decision.decided)
            if dies:
                self.die_at = None
                raise Killed
        for effect in decision.effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        world = self.world
        if isinstance(effect, BeginCheckpoint):
            world.staged[effect.number] = {}
        elif isinstance(effect, CommitCheckpoint):
            failed = world.clock.chance.random() < world.checkpoint_failure
            if not failed:
                world.checkpoints[effect.number] = world.staged.pop(effect.number)
            if world.clock.chance.random() < 0.02:
                raise Killed
            failure = "the disk is full" if failed else ""
            ended = self.machine.checkpoint_ended(effect.number, world.clock.now, failure)
            self._settle(ended)
        else:
            world.staged.pop(effect.number, None)

    def _restart(self) -> None:
        self.process.alive = False
        self.process = Process()
        self.restarts += 1
        delay = self.world.clock.chance.uniform(0.2, 3.0)
        self.process.paused_until = self.world.clock.now + delay
        self._routes.clear()
        self._told.clear()
        self._pushed.clear()
        self.machine = self._machine(entries.fold(State(), self.entries()))
        self.world.clock.after(delay, self.process, self._come_back)

    def _come_back(self) -> None:
        committed = max(self.world.checkpoints, default=None)
        try:
            self._settle(self.machine.restarted(self.world.clock.now, committed))
        except Killed:
            self._restart()
            return
        self._tick()

    def _push_orders(self) -> None:
        self._announce()
        for number, issued in self.state.orders.items():
            route = self._routes.get(issued.member)
            if number in self._pushed or route is None:
                continue
            self._pushed.add(number)
            order = self.machine.numbered(issued)
            process, listening = route
            self._say(process, partial(listening.take_orders, (order,)))

    def _announce(self) -> None:
        for role in (Role.SHARD, Role.REPLICA):
            epoch = news.epoch_for(self.state, role)
            if self._told.get(role) == epoch:
                continue
            self._told[role] = epoch
            told = self.machine.news(role, self.world.clock.now)
            for member, (process, listening) in self._routes.items():
                if member.role is role:
                    self._say(process, partial(listening.heard, told))
