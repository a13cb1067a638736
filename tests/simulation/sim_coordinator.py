"""The coordinator's process, which can be killed before or after any line of its journal."""

from collections.abc import Callable
from functools import partial
from typing import Any

from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.transaction import CommitCheckpoint, Effect
from disttrain.coordinator.journal.entries import Decided, Entry
from disttrain.coordinator.journal.job_entries import EvaluationBegun, EvaluationEnded
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.process import server
from disttrain.coordinator.process.server import steady_clock
from disttrain.coordinator.process.service import Parts
from disttrain.coordinator.protocol.commands import Evaluate
from disttrain.job.names import Role
from disttrain.transport.header import Role as TransportRole
from simulation.world import COORDINATOR, TICK_SECONDS, Incarnation, World, as_any, silent

_EPOCH = 1e9
"""What the wall clock shows at first."""


class SimCoordinator:
    """All incarnations of the coordinator."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.decided: list[Decided] = []
        """What is in the journal, of all incarnations; nothing of one that was replaced."""
        self.parts: Parts
        """Of the incarnation that began last."""
        self.incarnation = Incarnation(world, TransportRole.COORDINATOR)
        self.die_in: int | None = None
        """Lines of the journal until it is killed, before or after one."""
        self.skew = 0.0
        """Of the wall clock, from the next incarnation on."""
        self.place = "node-1"
        self.incarnations = 0
        self._evaluates = False
        self.when_decided: Callable[[Incarnation], None] = lambda _: None
        """Called after each line of the journal of the incarnation that began last."""

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def machine(self) -> Coordinator:
        return self.parts.machine

    def start(self) -> Incarnation:
        """The next incarnation."""
        self.incarnations += 1
        self.incarnation = Incarnation(self.world, TransportRole.COORDINATOR)
        self.incarnation.run(
            partial(self._serve, self.incarnation, f"{COORDINATOR}-{self.incarnations}")
        )
        return self.incarnation

    def be_replaced(self) -> None:
        """Another coordinator begins elsewhere, while this one lives."""
        self.place = "node-2"
        self.start()

    def entries(self) -> list[Entry]:
        return [entry for decided in self.decided for entry in decided]

    def _serve(self, incarnation: Incarnation, address: str) -> None:
        wall = partial(self._wall, self.skew)
        parts, origin = server.open_parts(
            self.world.config(Role.COORDINATOR, 0, self.place),
            reporting=lambda _: silent(),
            watch=as_any(_NoNotices()),
            clock=lambda before: steady_clock(before, wall, incarnation.transport.now),
        )
        self._disturb(parts, incarnation)
        self.parts = parts
        server.begin(parts, origin, incarnation.transport.listen(address)).run()
        parts.journal.close()
        incarnation.end()

    def _wall(self, skew: float) -> float:
        return _EPOCH + self.world.now + skew

    def _disturb(self, parts: Parts, incarnation: Incarnation) -> None:
        append, carry_out = parts.journal.append, parts.checkpoints.carry_out
        journal, checkpoints = as_any(parts.journal), as_any(parts.checkpoints)
        parts.journal = as_any(_Wrapped(journal, append=partial(self._append, incarnation, append)))
        carry_out = partial(self._carry_out, incarnation, carry_out)
        parts.tick_seconds = TICK_SECONDS
        parts.checkpoints = as_any(_Wrapped(checkpoints, carry_out=carry_out))

    def _append(
        self, incarnation: Incarnation, append: Callable[[Decided], None], decided: Decided
    ) -> None:
        dies = self.die_in == 0 and bool(decided)
        if decided and self.die_in is not None:
            self.die_in = None if dies else self.die_in - 1
        if dies and self.world.chance.random() < 0.5:
            incarnation.die()
        append(decided)
        if decided and incarnation is self.incarnation:
            self.decided.append(decided)
            self._look_after_evaluations(decided)
            self.when_decided(incarnation)
        if dies:
            incarnation.die()

    def _carry_out(
        self,
        incarnation: Incarnation,
        carry_out: Callable[[Effect, State], str],
        effect: Effect,
        state: State,
    ) -> str:
        chance = self.world.chance
        if isinstance(effect, CommitCheckpoint):
            if chance.random() < self.world.checkpoint_failure:
                return "the disk is full"
            failure = carry_out(effect, state)
            if chance.random() < self.world.commit_crash:
                incarnation.die()
            return failure
        return carry_out(effect, state)

    def _look_after_evaluations(self, decided: Decided) -> None:
        """A batch method does one when it has come to the next point."""
        for entry in decided:
            if isinstance(entry, EvaluationBegun):
                self._evaluates = True
            elif isinstance(entry, EvaluationEnded) and not entry.evaluation.final:
                self._evaluates = False
        asked = any(isinstance(issued.order, Evaluate) for issued in self.state.orders.values())
        incarnations = any(replica.takes_part for replica in self.state.replicas.values())
        trains = self.state.phase is Phase.RUNNING and not self.state.warm_start.ended
        if self.state.batch is None and self._evaluates and incarnations and not asked and trains:
            self.world.violations.append("nobody does an evaluation that was begun")


class _Wrapped:
    """Something with other methods in front of its own."""

    def __init__(self, wrapped: object, **methods: object) -> None:
        self._wrapped = wrapped
        self.__dict__.update(methods)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class _NoNotices:
    """Nobody leaves a word in the store."""

    def found(self, now: float) -> dict[str, object]:
        del now
        return {}

    def finish(self) -> None:
        pass
