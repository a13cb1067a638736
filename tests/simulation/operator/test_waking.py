"""An operator that looks only when something wakes it: no change may pass without a look.

Nothing is listed again, so whatever is taken in without a look stays as it is.
"""

import asyncio
import os
import random
from datetime import timedelta

import pytest

from builders import many_jobs
from builders.fake_cluster import BEGIN, FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain.errors import DistTrainError
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Change
from disttrain_operator.observed.records import JobKey
from disttrain_operator.reconcile.queue import Queue

SEEDS = range(int(os.environ.get("DISTTRAIN_SIMULATION_SEEDS", "30")))
STEPS = 40
MEETS = 0.2
"""How often a request meets a change by somebody else, made the moment before."""
KEY = JobKey(many_jobs.SPACE, "job")
JOB = (Kind.DistTrainJob, *KEY)


class Owner(FakeClient):
    """A client whose requests meet what the job's owner does."""

    def __init__(self, world: World, chance: random.Random) -> None:
        super().__init__(world)
        self.world, self.chance, self.busy = world, chance, True

    def change(self) -> None:
        suspend, count = self.chance.random() < 0.3, self.chance.randint(1, 4)
        self.world.change(JOB, {"spec": {"suspend": suspend, "replicas": {"count": count}}})

    def _count(self) -> None:
        super()._count()
        if self.busy and self.chance.random() < MEETS:
            self.change()


class Operator(OperatorInMemory):
    """An operator around a queue, as the process has it, in the world's time."""

    def __init__(self, world: World, client: Owner) -> None:
        super().__init__(world, client)
        self.see_everything()
        self.queue: Queue[JobKey] = Queue()
        self.queue.add(KEY, self.now())

    def wake(self) -> None:
        """Take in what happened, and let it wake whom it wakes."""
        for kind, (job, change) in self.hear():
            if kind is Kind.DistTrainJob:
                if change is not Change.NOTHING:
                    self.queue.reset_backoff(job)
                    self.queue.add(job, self.now())
                continue
            wait = change.debounce(self.inventory.at(job).job)
            if wait is not None:
                self.queue.add(job, self.now() + wait.total_seconds())

    async def work(self) -> None:
        """Look at what is due."""
        while (key := self.queue.take(self.now())) is not None:
            try:
                seconds = await self.reconciler.look(key, self.queue.failures(key))
            except DistTrainError:
                self.queue.failed(key, self.now())
                continue
            self.queue.done(key)
            if seconds is not None:
                self.queue.add(key, self.now() + max(0.0, seconds))

    def now(self) -> float:
        return (self.world.now - BEGIN).total_seconds()


async def live(world: World, chance: random.Random) -> None:
    """A while of changes, and then time to come to rest."""
    client = Owner(world, chance)
    operator = Operator(world, client)
    for step in range(2 * STEPS):
        client.busy = step < STEPS
        if client.busy and chance.random() < 0.2:
            client.change()
        if chance.random() < 0.6:
            operator.wake()
        await operator.work()
        if chance.random() < 0.6:
            world.run_controllers()
        world.now += timedelta(seconds=chance.uniform(0.1, 10))


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_the_owner_changes_is_done_in_the_end(seed: int) -> None:
    world = World()
    made = many_jobs.job("job")
    world.create(Kind.DistTrainJob, {"metadata": made["metadata"], "spec": made["spec"]})

    asyncio.run(live(world, random.Random(seed)))

    job = world.objects[JOB]
    suspended = job["spec"].get("suspend", False)
    assert trains(world) is not suspended
    assert num_replicas(world) == (0 if suspended else job["spec"]["replicas"]["count"])
    assert job["status"]["phase"] == ("Suspended" if suspended else "Running")
    assert job["status"]["observedGeneration"] == job["metadata"]["generation"]


def trains(world: World) -> bool:
    """Whether a coordinator is wanted; a job that is suspended from the beginning has none."""
    found = world.objects.get((Kind.Job, KEY.namespace, "job-coordinator"))
    return found is not None and not found["spec"]["suspend"]


def num_replicas(world: World) -> int:
    found = world.objects.get((Kind.ReplicaSet, KEY.namespace, "job-replica"))
    return 0 if found is None else int(found["spec"]["replicas"])
