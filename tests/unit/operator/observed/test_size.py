"""What is kept of an object is small: thousands of jobs stay in memory."""

import asyncio
import json
import tracemalloc

from builders import many_jobs
from builders.fake_cluster import FakeClient, World
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.watched import KINDS, Sights
from disttrain_operator.reconcile import report
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.relist import Relister

JOBS = 20
MOST_BYTES = 600
"""1 KB was asked for; of a job that runs it is less."""
Line = tuple[Kind, str]


def new_keys() -> dict[Role, KeyPair]:
    return {role: KeyPair(f"public-{role}", f"secret-{role}") for role in Role}


def lines(world: World) -> list[Line]:
    """Everything that is watched, as the API tells it."""
    return [(kind, json.dumps(body)) for (kind, *_), body in world.objects.items() if kind in KINDS]


def see(inventory: Inventory, told: list[Line]) -> None:
    sights = Sights(inventory, report.FIELDS)
    for kind, line in told:
        sights.seen(kind, json.loads(line))


def look(world: World) -> None:
    """An operator looks at every job once."""
    client, inventory = FakeClient(world), Inventory()
    see(inventory, lines(world))
    relister = Relister(client, inventory, Sights(inventory, report.FIELDS), (), lambda _: None)
    reconciler = Reconciler(
        client, inventory, ManifestConfig(), new_keys, relister.job, lambda: world.now
    )
    for key in inventory.places():
        asyncio.run(reconciler.look(key, 0))


def running_jobs() -> list[Line]:
    """All objects of many jobs, whose pods run and whose statuses say so."""
    world = World()
    for place in range(JOBS):
        body = many_jobs.job(f"j{place}")
        world.create(Kind.DistTrainJob, {"metadata": body["metadata"], "spec": body["spec"]})
    look(world)
    world.run_controllers()
    look(world)
    return lines(world)


def test_an_object_takes_less_than_a_kilobyte() -> None:
    told, inventory = running_jobs(), Inventory()

    tracemalloc.start()
    try:
        see(inventory, told)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(told) > 15 * JOBS
    assert taken / len(told) < MOST_BYTES
