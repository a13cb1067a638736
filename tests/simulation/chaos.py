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

from disttrain.coordinator.journal.batch_entries import RunBegun
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.control import ControlConnection
from disttrain.job import names
from disttrain.job.names import Role as JobRole
from disttrain.job.spec import DistTrainJob
from disttrain.launch.run_folder import RunFolder
from disttrain.transport.header import Role
from disttrain.transport.in_memory import InMemoryTransport, Network, Weather
from disttrain.transport.virtual_time import Bell, VirtualTime
from simulation import batch, jobs, told
from simulation.jobs import Kind
from simulation.sim_coordinator import SimCoordinator
from simulation.sim_replica import SimReplica
from simulation.sim_shard import SimShard
from simulation.told import Told
from simulation.world import COORDINATOR, Incarnation, World

LONGEST = 1800.0
"""Simulated seconds by which every job must have ended: in the worst weather only each tenth fetch
of many chunks comes through."""
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
    seed: int
    kind: Kind = Kind.DOWNPOUR
    shard_faults: bool = True
    target: bool = False
    """An accuracy that any update may reach, or lose again, ends the job."""
    takeover: Takeover | None = None
    seconds: float = 10.0
    """How long it takes without faults, about; they come in this time."""
    faults: int | None = None
    """None: few, drawn."""
    is_quiet: bool = False
    """Nothing goes wrong."""
    stop_at: float | None = None
    """When somebody stops the job."""
    more: tuple[str, ...] = ()
    """Assignments to the manifest."""


class Chaos:
    def __init__(self, plan: Plan, before: "Chaos | None" = None) -> None:
        """`before`: a run that was stopped, whose job goes on in the same folder."""
        self.plan = plan
        self.before = before
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
            longest=chance.choice([0.01, 0.03, 0.1] if self.is_a_batch else [0.02, 0.1, 0.6]),
        )
        if plan.is_quiet:
            weather = Weather(shortest=0.001, longest=0.01)
        chance = random.Random(plan.seed + 1_000_003)
        network = Network(
            self.time, chance=chance, weather=weather, route=self._route, chunk_bytes=CHUNK_BYTES
        )
        self.replicas, self.shards = self.chance.randint(1, 3), self.chance.randint(1, 2)
        epochs = jobs.epochs(target=plan.target)
        steps = self.chance.uniform(0.5, 1.0) * plan.seconds / 0.3 * self.replicas
        self.world = World(
            network=network,
            folder=Path(),
            job=self._job(),
            samples=batch.SAMPLES if self.is_a_batch else max(24, int(4 * steps / epochs)),
            parameters=self._parameters(),
            push_every=self.chance.choice([1, 1, 2]),
            queue=self.chance.choice([8, 16]),
            checkpoint_failure=0.1 * (self.chance.random() < 0.2) * (not plan.is_quiet),
            commit_crash=0.02 * (not plan.is_quiet),
        )
        self.replicas, self.shards = self.world.job.spec.replicas.count, self.world.job.spec.shards
        if self.is_a_batch:
            self.world.start, self.world.rate = float(batch.START[0]), jobs.WARM_RATE
            self.world.write_seconds = 0.05
        self.coordinator = SimCoordinator(self.world)
        self.members: dict[str, Incarnation] = {}
        self.shard_incarnations = [0] * self.shards
        self.died = 0
        self.replaced = 0
        """Incarnation of the coordinator that another one took the job from; 0: none."""
        self._reach: dict[InMemoryTransport, float] = {}
        self.told: list[Told] = []
        self.exported = np.zeros(0, np.float32)
        """The model that the job has made."""
        self.control: ControlConnection
        """The launcher's."""
        self.has_acted = False
        self._over = Bell(self.time)

    def run(self, then: "Callable[[Chaos], Chaos] | None" = None) -> "Chaos":
        """Runs to the end of the job, or of patience.

        Gives what `then` makes of it, while the folder is there.
        """
        where = str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None
        if self.before is not None:
            self._go_on(self.before.world)
        else:
            self.world.folder = Path(tempfile.mkdtemp(dir=where))
        try:
            self._run()
            self._look()
            self.time.close()
            return self if then is None else then(self)
        finally:
            self.time.close()
            if self.before is None:
                shutil.rmtree(self.world.folder)

    def _go_on(self, before: World) -> None:
        self.world.folder, self.world.cuts = before.folder, before.cuts
        checkpoints = self.world.config(JobRole.COORDINATOR, 0).checkpoints.folder
        self.world.resume_from = max(checkpoints.glob("[0-9]*"))
        RunFolder(before.folder).resumed.parent.mkdir()

    @property
    def partitions(self) -> int:
        return self.world.job.spec.replicas.partitions

    @property
    def is_a_batch(self) -> bool:
        return self.plan.kind.is_a_batch_method

    @property
    def rolled_back(self) -> bool:
        """Whether a shard began again, with less than it had applied."""
        return any(incarnations > 1 for incarnations in self.shard_incarnations)

    def _run(self) -> None:
        self.coordinator.start()
        self.time.start(self._launch)
        few = self.chance.choice([0, 1, 1, 2, 3, 4])
        planned = few if self.plan.faults is None else self.plan.faults
        for _ in range(0 if self.plan.is_quiet else planned):
            self._plan_fault()
        if self.plan.stop_at is not None:
            self.time.after(self.plan.stop_at, self._stop)
        if self.plan.takeover is not None:
            self.time.after(self.plan.takeover.at, self._take_over)
        self.time.wait(LONGEST, [self._over])

    def at(self, moment: Callable[[State], bool], act: Callable[[Incarnation], None]) -> None:
        """Do something to the job once, when the journal has come to a moment.

        `act` gets the coordinator, whose thread it is.
        """

        self.has_acted = False

        def look(incarnation: Incarnation) -> None:
            if not self.has_acted and moment(self.coordinator.state):
                self.has_acted = True
                act(incarnation)

        self.coordinator.when_decided = look

    def _stop(self) -> None:
        self.control.request(messages.Stop(reason="enough"))

    def _take_over(self) -> None:
        if self.coordinator.incarnation.is_alive and not self.coordinator.state.phase.ended:
            self.replaced = self.coordinator.incarnations
            self.coordinator.be_replaced()

    def _look(self) -> None:
        """What is to be known of the job's folder before it is deleted."""
        begun = [one for one in self.coordinator.entries() if isinstance(one, RunBegun)]
        cut = begun[0].cut if begun else None
        self.told = [told.read(self.world, shard, cut) for shard in range(self.shards)]
        model = RunFolder(self.world.folder).model
        if model.exists():
            self.exported = safetensors.numpy.load_file(model)["parameters"]

    def _route(self, transport: InMemoryTransport, address: str) -> str:
        if address != COORDINATOR:
            return address
        incarnation, takeover = self.coordinator.incarnations, self.plan.takeover
        if self.replaced and takeover is not None:
            seconds = self._reach.setdefault(transport, self.chance.random())
            if self.time.now < takeover.at + seconds * takeover.reach_seconds:
                incarnation = self.replaced
        return f"{COORDINATOR}-{incarnation}"

    def _parameters(self) -> int:
        if self.is_a_batch:
            return batch.DIMENSIONS
        least, most = (270, 400) if self.plan.kind is Kind.FRAGMENTS else (20, 100)
        return self.chance.randint(least, most)

    def _job(self) -> DistTrainJob:
        more = [*jobs.of_size(self.replicas, self.shards), *self.plan.more]
        if self.is_a_batch:
            return jobs.of_a_method(self.plan.kind, *more)
        if self.chance.random() < 0.3 and self.plan.kind is Kind.DOWNPOUR:
            more.append("spec.strategy.downpour.warmStart.samples=12")
        if self.plan.kind in {Kind.QUORUM, Kind.FRAGMENTS}:
            more.append(f"spec.strategy.localSteps.quorum={min(2, self.replicas)}")
        return jobs.of_pushes(self.plan.kind, *more, target=self.plan.target)

    def _plan_fault(self) -> None:
        kinds: list[Callable[[], None]] = [
            lambda: self._some("replica").kill(),
            lambda: self._pause(self._some("replica")),
            self._kill_coordinator,
            lambda: self._pause(self.coordinator.incarnation),
        ]
        if self.plan.shard_faults:
            kinds += 2 * [lambda: self._some("shard").kill()]
            kinds.append(lambda: self._pause(self._some("shard")))
        at = self.chance.uniform(0.5, 1.2 * self.plan.seconds)
        self.time.after(at, self.chance.choice(kinds))

    def _some(self, role: str) -> Incarnation:
        if role == "shard":
            return self.members[names.shard_name(self.chance.randrange(self.shards))]
        index = self.chance.randrange(self.replicas)
        partition = self.chance.randrange(self.partitions) if self.partitions > 1 else 0
        return self.members[names.member_name(index, partition, self.partitions)]

    def _pause(self, incarnation: Incarnation) -> None:
        """What is said to it meanwhile fills its queues."""
        incarnation.pause(self.chance.choice([2.0, 7.0, 15.0]))

    def _kill_coordinator(self) -> None:
        self.coordinator.die_in = self.chance.randrange(6)
        self.coordinator.skew = self.chance.choice([-100.0, 0.0, 0.0, 100.0])

    def _launch(self) -> None:
        """Starts whatever has died again, and tells the coordinator of it."""
        incarnation = Incarnation(self.world, Role.LAUNCHER)
        channel = incarnation.transport.connect(COORDINATOR)
        chance = self.world.chance.random
        control = ControlConnection(channel, Role.LAUNCHER, 1.0, incarnation.transport.now, chance)
        self.control = control
        for name in self._names():
            self._start(name)
        due: dict[str, float] = {}
        while not all(member.is_over for member in self.members.values()):
            control.poll(None, wait=0.25)
            self._look_after_coordinator(due)
            for name, member in self.members.items():
                if not member.is_alive and name not in due:
                    self._end_group(name)
                    self.died += 1
                    due[name] = self.time.now + self.chance.uniform(0.1, 2.0)
                    if self.chance.random() < 0.7:
                        control.request(_death(name, member))
            for name in [name for name, at in due.items() if self.time.now >= at]:
                del due[name]
                self._start(name)
        self._over.ring()

    def _names(self) -> list[str]:
        shards = [names.shard_name(index) for index in range(self.shards)]
        return shards + [
            names.member_name(index, partition, self.partitions)
            for index in range(self.replicas)
            for partition in range(self.partitions)
        ]

    def _end_group(self, name: str) -> None:
        """As the launcher does, and a node does not: there each process ends by itself."""
        group = names.parse(name).group
        for other, member in self.members.items():
            is_near = other != name and names.parse(other).group == group and not member.is_over
            if is_near and member.is_alive and self.chance.random() < 0.5:
                member.kill()

    def _look_after_coordinator(self, due: dict[str, float]) -> None:
        if not self.coordinator.incarnation.is_alive and COORDINATOR not in due:
            due[COORDINATOR] = self.time.now + self.chance.uniform(0.2, 3.0)

    def _start(self, name: str) -> None:
        found = names.parse(name)
        if found.role is JobRole.COORDINATOR:
            self.coordinator.start()
        elif found.role is JobRole.SHARD:
            self.shard_incarnations[found.index] += 1
            self.members[name] = SimShard(self.world, found.index)
        else:
            self.members[name] = SimReplica(self.world, found.index, found.partition or 0)


def _death(name: str, member: Incarnation) -> messages.MemberDied:
    found = names.parse(name)
    return messages.MemberDied(
        role=member.role,
        index=found.index,
        partition=found.partition or 0,
        pid=member.pid,
        exit_code=-9,
    )


def run(seed: int, **plan: Any) -> Chaos:
    """The run of a seed; `plan` as in `Plan`."""
    return Chaos(Plan(seed=seed, **plan)).run()
