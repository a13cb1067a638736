"""Runs of a small batch method with faults drawn from a seed."""

import random
from collections.abc import Sequence

from disttrain.sandblaster import names
from disttrain.sandblaster.batch import driver as driving
from disttrain.sandblaster.batch.driver import Course, Driver, Stage
from disttrain.sandblaster.batch.groups import Result, Worker
from simulation.clockwork import Clockwork, Weather
from simulation.sandblaster import group_work, problem
from simulation.sandblaster.actors import (
    Job,
    SimCoordinator,
    SimReplica,
    SimShard,
    first_shards,
)
from simulation.sandblaster.problem import Kind

LONGEST = 2000.0
"""Simulated seconds in which every run must end."""
_STORMY_SECONDS = 15.0
REPLICAS = 3


def serial(
    driver: Driver | None = None, start: problem.Point = problem.START
) -> tuple[Course, bytes]:
    """The same job where nothing happens at the same time: its end, and its parameters."""
    driver = driver or problem.driver()
    course = driver.begin(1, (1,) * problem.SHARDS)
    shards = first_shards(Job(Clockwork(0, Weather())), start)
    worker = Worker(0, 1)
    while course.stage is not Stage.DONE:
        order = course.order
        for shard in shards:
            driver.answered(course, shard.index, shard.inner.carry_out(order))
        while attempt := driver.request_group(course, worker):
            point = problem.whole([shard.inner.vectors[names.TRIAL] for shard in shards])
            computed = problem.compute(attempt.group, point)
            number = course.evaluation.number
            for shard, part in zip(shards, problem.RANGES, strict=True):
                for chunk, values in group_work.pieces(
                    worker, number, attempt.group, attempt.number, computed.gradient[part]
                ):
                    shard.inner.stage(chunk, values)
            result = Result(
                attempt=attempt.number,
                evaluation=number,
                loss_sum=computed.loss_sum,
                samples=computed.samples,
                shards=course.evaluation.shards,
            )
            driver.staged(course, worker, result)
    return course, parameters(shards).tobytes()


def parameters(shards: Sequence[SimShard]) -> problem.Point:
    return problem.whole([shard.inner.vectors[names.PARAMETERS] for shard in shards])


class Storm:
    """Kills and pauses processes, for a while."""

    def __init__(self, job: Job, chance: random.Random) -> None:
        self.job, self.chance, self.clock = job, chance, job.clock
        self.replicas = [SimReplica(job, index, self.speed()) for index in range(REPLICAS)]
        self.clock.after(chance.expovariate(0.5), None, self.strike)

    def speed(self) -> float:
        return self.chance.choice((1.0, 1.0, 1.0, 10.0))

    def strike(self) -> None:
        if self.clock.now > _STORMY_SECONDS:
            return
        self.chance.choice((self.replica, self.replica, self.coordinator, self.shard))()
        self.clock.after(self.chance.expovariate(0.5), None, self.strike)

    def end(self, process: SimReplica | SimCoordinator) -> None:
        """Kill it, or let it sleep and wake up after another life has begun."""
        if self.chance.random() < 0.5:
            process.alive = False
        else:
            process.paused_until = self.clock.now + self.chance.uniform(0.1, 5.0)

    def replica(self) -> None:
        index = self.chance.randrange(REPLICAS)
        self.end(self.replicas[index])

        def again() -> None:
            self.replicas[index] = SimReplica(self.job, index, self.speed())

        self.clock.after(self.chance.uniform(0.01, 3.0), None, again)

    def coordinator(self) -> None:
        old = self.job.coordinator
        assert old is not None
        self.end(old)

        def again() -> None:
            newest = self.job.coordinator
            if newest is old:
                self.job.coordinator = SimCoordinator(self.job, old.incarnation + 1)

        self.clock.after(self.chance.uniform(0.01, 1.0), None, again)

    def shard(self) -> None:
        shard = self.chance.choice(self.job.shards)
        shard.alive = False

        def again() -> None:
            if shard in self.job.shards:
                self.restart_shards(shard)

        self.clock.after(self.chance.uniform(0.01, 1.0), None, again)

    def restart_shards(self, lost: object) -> None:
        """A coordinator that is there sees the loss; else it is seen later."""
        coordinator = self.job.coordinator
        assert coordinator is not None
        if lost not in self.job.shards:
            return
        if coordinator.alive and coordinator.paused_until <= self.clock.now:
            coordinator.return_to_cut()
        else:
            self.clock.after(0.2, None, lambda: self.restart_shards(lost))


def run(seed: int, kind: Kind = Kind.WHOLE) -> Job:
    """One job among faults; what was wrong with it is in `violations`."""
    chance = random.Random(seed)
    weather = Weather(
        loss=chance.choice((0.0, 0.02, 0.2)),
        duplication=chance.choice((0.0, 0.1, 0.3)),
        delay=chance.choice((0.01, 0.05, 0.5)),
    )
    clock = Clockwork(seed, weather)
    job = Job(clock, kind)
    job.shards = first_shards(job)
    job.coordinator = SimCoordinator(job, 1)
    job.cut, job.cut_shards = (
        driving.COURSE_JSON.write(job.coordinator.course),
        [shard.inner for shard in first_shards(job)],
    )
    Storm(job, chance)
    while clock.now < LONGEST and not job.is_over and not job.violations:
        clock.step()
    job.violations += _wrong(job)
    return job


def _wrong(job: Job) -> list[str]:
    if job.violations:
        return []
    if not job.is_over:
        return ["the job did not end"]
    found = [
        f"shards committed different attempts: {one}"
        for one in job.committed.values()
        if len(one) > 1
    ]
    course, wanted = _SERIAL[job.kind]
    assert job.coordinator is not None
    if parameters(job.shards).tobytes() != wanted:
        found.append("the parameters are not those of an undisturbed run")
    if job.coordinator.course.method.progress != course.method.progress:
        found.append("the progress is not that of an undisturbed run")
    return found


_SERIAL = {kind: serial(problem.driver(kind)) for kind in Kind}
