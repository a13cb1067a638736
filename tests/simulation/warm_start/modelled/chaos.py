"""A whole simulated job with faults drawn from a seed, and the launcher that restarts what dies."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

from disttrain.coordinator.decisions.turn import CoordinatorSide
from disttrain.coordinator.protocol import messages
from disttrain.transport.header import Role
from simulation.clockwork import Clockwork, Process, Weather
from simulation.warm_start.modelled.sim_coordinator import SimCoordinator
from simulation.warm_start.modelled.sim_member import SimMember
from simulation.warm_start.modelled.sim_replica import SimReplica
from simulation.warm_start.modelled.sim_shard import SimShard
from simulation.warm_start.modelled.world import World

LONGEST = 600.0
"""Simulated seconds by which every job must have ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What kind of run."""

    seed: int
    shard_type: type[SimShard] = SimShard
    replica_type: type[SimReplica] = SimReplica


class Chaos(ABC):
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        clock = Clockwork(plan.seed, Weather())
        chance = clock.chance
        bad = chance.random()
        weather = Weather(
            loss=0.15 * bad * (chance.random() < 0.7),
            duplication=0.2 * bad * (chance.random() < 0.7),
            delay=chance.choice([0.02, 0.1, 0.6]),
        )
        clock = Clockwork(plan.seed + 1_000_003, weather)
        self.chance = chance
        self.stages = self._stages()
        self.settings = self.stages[0].settings
        self.world = World(
            clock=clock,
            stages=self.stages,
            samples=self._samples(),
            push_every=chance.choice([1, 1, 2]),
            checkpoint_failure=0.1 * (chance.random() < 0.2),
        )
        self.coordinator = SimCoordinator(self.world)
        self.shard_lives: dict[int, int] = {}
        self.died = 0

    def run(self) -> "Chaos":
        """Runs to the end of the job, or of patience."""
        for index in range(self.settings.shards):
            self._start(f"shard-{index}")
        for index in range(self.settings.replicas):
            self._start(f"replica-{index}")
        for _ in range(self.chance.choice([0, 1, 1, 2, 3, 4])):
            self._plan_fault()
        clock = self.world.clock
        while not self.coordinator.state.phase.ended and clock.now < LONGEST:
            assert clock.step()
        return self

    @abstractmethod
    def _stages(self) -> tuple[CoordinatorSide, ...]: ...

    @abstractmethod
    def _samples(self) -> int: ...

    @abstractmethod
    def _plan_fault(self) -> None: ...

    def _kill_replica(self) -> None:
        self._kill(f"replica-{self.chance.randrange(self.settings.replicas)}")

    def _kill_shard(self) -> None:
        shard = self.world.processes[f"shard-{self.chance.randrange(self.settings.shards)}"]
        if isinstance(shard, SimShard) and shard.alive:
            self._kill(f"shard-{shard.index}")

    def _kill_coordinator(self) -> None:
        self.coordinator.die_at = len(self.coordinator.journal) + self.chance.randrange(6)

    def _kill(self, name: str) -> None:
        self.world.processes[name].alive = False

    def _start(self, name: str) -> None:
        role, index = name.split("-")
        number = int(index)
        process: SimMember
        if role == "shard":
            self.shard_lives[number] = self.shard_lives.get(number, 0) + 1
            life = self.shard_lives[number]
            process = self.plan.shard_type(self.world, self.coordinator, number, life)
        else:
            process = self.plan.replica_type(self.world, self.coordinator, number)
        self.world.processes[name] = process
        self._watch(name, process)

    def _watch(self, name: str, process: SimMember) -> None:
        """The launcher looks now and then, tells the coordinator, and starts it again."""
        if process.ended or self.coordinator.state.phase.ended:
            return
        if process.alive:
            self.world.clock.after(0.5, None, lambda: self._watch(name, process))
            return
        self.died += 1
        role = Role.SHARD if isinstance(process, SimShard) else Role.REPLICA
        index = int(name.split("-")[1])
        report = messages.MemberDied(role=role, index=index, pid=process.pid, exit_code=-9)
        if self.chance.random() < 0.7:
            self._tell(report)
        self.world.clock.after(self.chance.uniform(0.1, 2.0), None, lambda: self._start(name))

    def _tell(self, report: messages.MemberDied) -> None:
        launcher = Process()
        answered: list[messages.Reply] = []

        def send() -> None:
            if not answered:
                request = partial(self.coordinator.request, report, launcher, answered.append)
                self.world.clock.send(self.coordinator.process, request)
                self.world.clock.after(1.0, None, send)

        send()
