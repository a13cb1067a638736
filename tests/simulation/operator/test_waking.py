"""An operator that looks only when something wakes it: no change may pass without a look.

Nothing is listed again, so whatever is taken in without a look stays as it is.
"""

import asyncio
import os
import random
from datetime import timedelta
from typing import Any

import pytest

from builders import many_jobs
from builders.fake_cluster import BEGIN, FakeClient, World, watched_events
from disttrain.errors import DistTrainError
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.news import News
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Sights
from disttrain_operator.policies import looking
from disttrain_operator.reconcile import report
from disttrain_operator.reconcile.queue import Queue
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.relist import Relister

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


class Operator:
    """The operator's parts around a queue, as the process has them, in the world's time."""

    def __init__(self, world: World, client: Owner) -> None:
        self.world, self.client = world, client
        self.inventory = Inventory()
        self.sights = Sights(self.inventory, report.FIELDS)
        self.queue: Queue[JobKey] = Queue()
        relister = Relister(client, self.inventory, self.sights, (), lambda _: None)
        clock = lambda: world.now  # noqa: E731 - Time is the world's.
        self.reconciler = Reconciler(
            client, self.inventory, ManifestConfig(), new_keys, relister.job, clock
        )
        self.heard = 0

    def hear(self) -> None:
        told = watched_events(self.world, self.heard)
        self.heard = len(self.world.events)
        for kind, event, body in told:
            self.take(kind, event, body)

    def take(self, kind: Kind, event: str, body: dict[str, Any]) -> None:
        seen = self.sights.gone if event == "DELETED" else self.sights.seen
        job, news = seen(kind, body)
        if kind is Kind.DistTrainJob:
            if news is not News.NOTHING:
                self.queue.forgive(job)
                self.queue.add(job, self.now())
            return
        wait = looking.after(self.inventory.at(job).job, news)
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


def new_keys() -> dict[Role, KeyPair]:
    return {role: KeyPair(f"public-{role}", f"secret-{role}") for role in Role}


async def live(world: World, chance: random.Random) -> None:
    """A while of changes, and then time to come to rest."""
    client = Owner(world, chance)
    operator = Operator(world, client)
    for step in range(2 * STEPS):
        client.busy = step < STEPS
        if client.busy and chance.random() < 0.2:
            client.change()
        if chance.random() < 0.6:
            operator.hear()
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
    found = world.objects.get((Kind.Deployment, KEY.namespace, "job-replica"))
    return 0 if found is None else int(found["spec"]["replicas"])
