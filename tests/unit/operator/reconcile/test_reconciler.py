"""One look at a job, where something comes between its steps."""

import asyncio
from typing import Any

import pytest

from builders import many_jobs
from builders.fake_cluster import FakeClient, World
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain_operator.errors import Unavailable
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.observed.inventory import Inventory
from disttrain_operator.observed.records import JobKey
from disttrain_operator.observed.watched import Sights
from disttrain_operator.reconcile import report
from disttrain_operator.reconcile.reconciler import Reconciler
from disttrain_operator.reconcile.relist import Relister
from disttrain_operator.telemetry.metrics import REGISTRY


def new_keys() -> dict[Role, KeyPair]:
    return {role: KeyPair(f"public-{role}", f"secret-{role}") for role in Role}


class Operator:
    """One operator with one job, `digits`, which has all it shall have."""

    def __init__(self, world: World, client: FakeClient) -> None:
        self.world = world
        self.inventory = Inventory()
        self.sights = Sights(self.inventory, report.FIELDS)
        self.relister = Relister(client, self.inventory, self.sights, (), lambda _: None)
        clock = lambda: world.now  # noqa: E731 - Time is the world's.
        self.reconciler = Reconciler(
            client, self.inventory, ManifestConfig(), new_keys, self.relister.job, clock
        )
        made = submit(world)["metadata"]
        self.key = JobKey(made["namespace"], made["name"])
        self.list_and_look()
        world.run_controllers()

    def list_and_look(self) -> None:
        asyncio.run(self.relister.all())
        self.look()

    def look(self, num_failures: int = 0) -> None:
        asyncio.run(self.reconciler.look(self.key, num_failures))


def submit(world: World, **spec: Any) -> dict[str, Any]:
    body = many_jobs.job("digits")
    written = {"metadata": body["metadata"], "spec": {**body["spec"], **spec}}
    return world.create(Kind.DistTrainJob, written)


def num_starts() -> float:
    return REGISTRY.get_sample_value("disttrain_operator_starting_seconds_count") or 0.0


def test_a_status_that_had_to_be_written_twice_is_counted_once() -> None:
    class Failing(FakeClient):
        fails = False

        async def apply(self, kind: Kind, body: dict[str, Any], subresource: str = "") -> Any:
            if subresource and self.fails:
                message = "no answer"
                raise Unavailable(message)
            return await super().apply(kind, body, subresource)

    world = World()
    client = Failing(world)
    operator = Operator(world, client)
    before = num_starts()

    client.fails = True
    asyncio.run(operator.relister.all())
    for failures in range(2):
        with pytest.raises(Unavailable):
            operator.look(failures)
    assert num_starts() == before

    client.fails = False
    operator.look()
    operator.look()
    assert num_starts() == before + 1
