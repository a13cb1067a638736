"""A whole simulated job with faults drawn from a seed, and the launcher that restarts what dies."""

import random
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from builders.jobs import a_job
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.launch.run_folder import RunFolder
from disttrain.transport.header import Role
from disttrain.transport.in_memory import InMemoryTransport, Network, Weather
from disttrain.transport.virtual_time import Bell, VirtualTime
from simulation import told
from simulation.sim_coordinator import SimCoordinator
from simulation.sim_replica import SimReplica
from simulation.sim_shard import SimShard
from simulation.told import Told
from simulation.world import COORDINATOR, Life, World

LONGEST = 600.0
"""Simulated seconds by which every job must have ended."""
CHUNK_BYTES = 64
_IN_MEMORY = Path("/dev/shm")
"""Where there is one: what is synced to disk is of no interest here, and takes long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Takeover:
    """When another coordinator begins, and how long members may still reach the older one."""

    at: float
    reach_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What kind of run."""

    seed: int
    shard_faults: bool = True
    target: bool = False
    """An accuracy that any update may reach, or lose again, ends the job."""
    takeover: Takeover | None = None
    seconds: float = 10.0
    """How long it takes without faults, about; they come in this time."""
    faults: int | None = None
    """None: few, drawn."""


class Chaos:
    """One run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed)
        self.time = VirtualTime()
        chance = self.chance
        bad = chance.random()
        weather = Weather(
            loss=0.15 * bad * (chance.random() < 0.7),
            duplication=0.2 * bad * (chance.random() < 0.7),
            overtaking=0.2 * bad * (chance.random() < 0.5),
            crash_loss=0.5,
            shortest=0.001,
            longest=chance.choice([0.02, 0.1, 0.6]),
        )
        chance = random.Random(plan.seed + 1_000_003)
        network = Network(
            self.time, chance=chance, weather=weather, route=self._route, chunk_bytes=CHUNK_BYTES
        )
        self.replicas, self.shards = self.chance.randint(1, 3), self.chance.randint(1, 2)
        epochs = 3 if plan.target else 2
        steps = self.chance.uniform(0.5, 1.0) * plan.seconds / 0.3 * self.replicas
        self.world = World(
            network=network,
            folder=Path(),
            job=a_job(*self._assignments(epochs)),
            samples=max(24, int(4 * steps / epochs)),
            parameters=self.chance.randint(20, 100),
            push_every=self.chance.choice([1, 1, 2]),
            queue=self.chance.choice([8, 16]),
            checkpoint_failure=0.1 * (self.chance.random() < 0.2),
            commit_crash=0.02,
        )
        self.coordinator = SimCoordinator(self.world)
        self.members: dict[str, Life] = {}
        self.shard_lives = [0] * self.shards
        self.died = 0
        self.replaced = 0
        """Life of the coordinator that another one took the job from; 0: none."""
        self._reach: dict[InMemoryTransport, float] = {}
        self.told: list[Told] = []
        self.exported = np.zeros(0, np.float32)
        """The model that the job has made."""
        self._over = Bell(self.time)

    def run(self) -> "Chaos":
        """Runs to the end of the job, or of patience."""
        where = str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None
        self.world.folder = Path(tempfile.mkdtemp(dir=where))
        try:
            self._run()
            self._look()
        finally:
            self.time.close()
            shutil.rmtree(self.world.folder)
        return self

    def _run(self) -> None:
        self.coordinator.start()
        self.time.start(self._launch)
        few = self.chance.choice([0, 1, 1, 2, 3, 4])
        for _ in range(few if self.plan.faults is None else self.plan.faults):
            self._plan_fault()
        if self.plan.takeover is not None:
            self.time.after(self.plan.takeover.at, self._take_over)
        self.time.wait(LONGEST, [self._over])

    def _take_over(self) -> None:
        if self.coordinator.life.is_alive and not self.coordinator.state.phase.ended:
            self.replaced = self.coordinator.lives
            self.coordinator.be_replaced()

    def _look(self) -> None:
        """What is to be known of the job's folder before it is deleted."""
        self.told = [told.read(self.world, shard) for shard in range(self.shards)]
        model = RunFolder(self.world.folder).model
        if model.exists():
            self.exported = safetensors.numpy.load_file(model)["parameters"]

    def _route(self, transport: InMemoryTransport, address: str) -> str:
        if address != COORDINATOR:
            return address
        life, takeover = self.coordinator.lives, self.plan.takeover
        if self.replaced and takeover is not None:
            seconds = self._reach.setdefault(transport, self.chance.random())
            if self.time.now < takeover.at + seconds * takeover.reach_seconds:
                life = self.replaced
        return f"{COORDINATOR}-{life}"

    def _assignments(self, epochs: int) -> list[str]:
        found = [
            "spec.strategy.downpour.optimizer.sgd.learningRate=1",
            f"spec.replicas.count={self.replicas}",
            f"spec.parameterServer.shards={self.shards}",
            "spec.batchSize=4",
            "spec.portionSize=8",
            f"spec.stop.epochs={epochs}",
            "spec.checkpoint.everySeconds=3",
            "spec.coordinator.leaseSeconds=4",
            "spec.coordinator.memberTimeoutSeconds=10",
            "spec.audit=full",
            "spec.record=true",
            f"spec.evaluation.everySeconds={2 if self.plan.target else 5}",
        ]
        if self.chance.random() < 0.3:
            found.append("spec.strategy.downpour.warmStart.samples=12")
        if self.plan.target:
            found.append("spec.stop.targetMetric.name=accuracy")
            found.append("spec.stop.targetMetric.atLeast=0.7")
        return found

    def _plan_fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            self._kill_replica,
            self._pause_replica,
            self._kill_coordinator,
            self._pause_coordinator,
        ]
        if self.plan.shard_faults:
            kinds += [self._kill_shard, self._kill_shard, self._pause_shard]
        at = self.chance.uniform(0.5, 1.2 * self.plan.seconds)
        self.time.after(at, self.chance.choice(kinds))

    def _kill_replica(self) -> None:
        self.members[f"replica-{self.chance.randrange(self.replicas)}"].kill()

    def _kill_shard(self) -> None:
        self.members[f"shard-{self.chance.randrange(self.shards)}"].kill()

    def _pause_replica(self) -> None:
        self._pause(self.members[f"replica-{self.chance.randrange(self.replicas)}"])

    def _pause_shard(self) -> None:
        self._pause(self.members[f"shard-{self.chance.randrange(self.shards)}"])

    def _pause_coordinator(self) -> None:
        self._pause(self.coordinator.life)

    def _pause(self, life: Life) -> None:
        """What is said to it meanwhile fills its queues."""
        life.pause(self.chance.choice([2.0, 7.0, 15.0]))

    def _kill_coordinator(self) -> None:
        self.coordinator.die_in = self.chance.randrange(6)
        self.coordinator.skew = self.chance.choice([-100.0, 0.0, 0.0, 100.0])

    def _launch(self) -> None:
        """Starts whatever has died again, and tells the coordinator of it."""
        life = Life(self.world, Role.LAUNCHER)
        channel = life.transport.connect(COORDINATOR)
        chance = self.world.chance.random
        control = ControlConnection(channel, Role.LAUNCHER, 1.0, self.time_now, chance)
        for index in range(self.shards):
            self._start(f"shard-{index}")
        for index in range(self.replicas):
            self._start(f"replica-{index}")
        due: dict[str, float] = {}
        while not all(member.is_over for member in self.members.values()):
            control.poll(None, wait=0.25)
            self._look_after_coordinator(due)
            for name, member in self.members.items():
                if not member.is_alive and name not in due:
                    self.died += 1
                    due[name] = self.time.now + self.chance.uniform(0.1, 2.0)
                    if self.chance.random() < 0.7:
                        control.request(_death(name, member))
            for name in [name for name, at in due.items() if self.time.now >= at]:
                del due[name]
                self._start(name)
        self._over.ring()

    def time_now(self) -> float:
        return self.time.now

    def _look_after_coordinator(self, due: dict[str, float]) -> None:
        if not self.coordinator.life.is_alive and COORDINATOR not in due:
            due[COORDINATOR] = self.time.now + self.chance.uniform(0.2, 3.0)

    def _start(self, name: str) -> None:
        role, _, number = name.partition("-")
        index = int(number or 0)
        if role == COORDINATOR:
            self.coordinator.start()
        elif role == "shard":
            self.shard_lives[index] += 1
            self.members[name] = SimShard(self.world, index)
        else:
            self.members[name] = SimReplica(self.world, index)


def _death(name: str, member: Life) -> messages.MemberDied:
    index = int(name.split("-")[1])
    return messages.MemberDied(role=member.role, index=index, pid=member.pid, exit_code=-9)


def run(seed: int, **plan: Any) -> Chaos:
    """The run of a seed; `plan` as in `Plan`."""
    return Chaos(Plan(seed=seed, **plan)).run()
