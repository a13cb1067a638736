"""What is kept of an object is small: thousands of jobs stay in memory."""

import asyncio
import json
import tracemalloc

from builders import many_jobs, operator_in_memory
from builders.fake_cluster import World
from builders.operator_in_memory import OperatorInMemory
from disttrain_operator.kinds import Kind
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.watched import Observer
from disttrain_operator.reconcile import report

JOBS = 20
MOST_BYTES = 800
"""1 KB was asked for; a job's packed objects are kept once for all its workloads."""
Line = tuple[Kind, str]


def lines(world: World) -> list[Line]:
    """Everything that is watched, as the API tells it."""
    return [(kind, json.dumps(body)) for kind, body in operator_in_memory.everything(world)]


def see(inventory: Inventory, told: list[Line]) -> None:
    observer = Observer(inventory, report.FIELDS)
    for kind, line in told:
        observer.seen(kind, json.loads(line))


def reconcile(world: World) -> None:
    """An operator looks at every job once."""
    operator = OperatorInMemory(world)
    operator.see_everything()
    for key in operator.inventory.places():
        asyncio.run(operator.reconciler.look(key, 0))


def running_jobs() -> list[Line]:
    """All objects of many jobs, whose pods run and whose statuses say so."""
    world = World()
    for place in range(JOBS):
        body = many_jobs.job(f"j{place}")
        world.create(Kind.DistTrainJob, {"metadata": body["metadata"], "spec": body["spec"]})
    reconcile(world)
    world.run_controllers()
    reconcile(world)
    return lines(world)


def test_an_object_takes_less_than_a_kilobyte() -> None:
    told, inventory = running_jobs(), Inventory()

    tracemalloc.start()
    try:
        see(inventory, told)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(told) > 10 * JOBS
    assert taken / len(told) < MOST_BYTES
