"""The reconciler among faults: lost and late events, restarts, an API server away, busy hands."""

import asyncio
import json
import os
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from builders.fake_cluster import FakeClient, World
from builders.jobs import a_spec
from builders.operator_in_memory import OperatorInMemory, WatchEvent
from disttrain.errors import DistTrainError
from disttrain_operator.errors import Forbidden
from disttrain_operator.kinds import CHILDREN, WORKLOADS, Kind
from disttrain_operator.observed.records import EndPhase, JobKey
from disttrain_operator.observed.watched import KINDS

SEEDS = range(int(os.environ.get("DISTTRAIN_SIMULATION_SEEDS", "8")))
STEPS = 60
KEY = JobKey("somewhere", "job")
JOB = (Kind.DistTrainJob, *KEY)
SERVICE = (Kind.Service, KEY.namespace, "job")
COMPLETE = json.dumps({"phase": "Complete", "reason": "EpochsDone", "message": ""})


def job(**spec: Any) -> dict[str, Any]:
    shared = {"parameterServer": {"shards": 2}, "replicas": {"count": 3}, "suspend": False}
    written = a_spec(**{**shared, **spec})
    return {"metadata": {"namespace": KEY.namespace, "name": KEY.name}, "spec": written}


class Operator(OperatorInMemory):
    """One incarnation of the operator; it forgets everything at its end."""

    def __init__(self, world: World, client: FakeClient | None = None) -> None:
        super().__init__(world, client)
        self.pending: list[WatchEvent] = []
        self.told: dict[str, list[WatchEvent]] = {}
        """What was taken in of each object that is there, by its uid."""

    async def relist(self) -> None:
        await self.relister.all()

    def hear_some(self, chance: random.Random, *, loss: float) -> None:
        """Take in some of the events; each kind's in order, some never."""
        self.pending += self.news()
        late = set(chance.sample(CHILDREN, 3)) if chance.random() < 0.5 else set()
        kept = []
        for event in self.pending:
            if event[0] in late:
                kept.append(event)
            elif chance.random() >= loss:
                self.tell(event)
        self.pending = kept
        self.tell_again(chance)

    def tell(self, event: WatchEvent) -> None:
        """Take in an event, and keep it to be told again."""
        self.take(event)
        uid = event[2]["metadata"]["uid"]
        if event[1] == "DELETED":
            self.told.pop(uid, None)
        else:
            self.told.setdefault(uid, []).append(event)

    def tell_again(self, chance: random.Random) -> None:
        """Take in old observations, as a list that was read slowly brings them after a watch."""
        known = {uid for kind in KINDS for uid in self.inventory.versions(kind)}
        for uid in chance.sample(
            sorted(known & set(self.told)), min(2, len(known & set(self.told)))
        ):
            self.take(chance.choice(self.told[uid]))

    def hear_the_rest(self) -> None:
        """Take in what was late."""
        for event in self.pending:
            self.take(event)
        self.pending = []

    async def reconcile(self) -> bool:
        """One look; returns whether it went well."""
        try:
            await self.reconciler.look(KEY, 0)
        except DistTrainError:
            return False
        return True


def children(world: World) -> dict[Kind, dict[str, Any]]:
    return {key[0]: body for key, body in world.objects.items() if key[0] in CHILDREN}


def meddle(world: World, chance: random.Random) -> None:
    """What people and nodes do."""
    deed = chance.choice(["suspend", "resume", "scale", "delete", "edit", "wait", "wait"])
    spec: dict[str, Any] = {}
    if deed in {"suspend", "resume"}:
        spec = {"suspend": deed == "suspend"}
    elif deed == "scale":
        spec = {"replicas": {"count": chance.randint(1, 5)}}
    if spec and JOB in world.objects:
        world.change(JOB, {"spec": spec})
    found = [key for key in world.objects if key[0] in {*CHILDREN, Kind.Pod}]
    if deed == "delete" and found:
        world.delete(chance.choice(found))
    scaled = [key for key in found if key[0] in {Kind.StatefulSet, Kind.ReplicaSet}]
    if deed == "edit" and scaled:
        world.change(chance.choice(scaled), {"spec": {"replicas": chance.randint(0, 4)}})


async def faults(world: World, chance: random.Random, *, end_at: int) -> Operator:
    operator = Operator(world)
    for step in range(STEPS):
        world.now += timedelta(seconds=chance.uniform(0.1, 3))
        world.down = chance.random() < 0.1
        meddle(world, chance)
        if step == end_at:
            world.finish_coordinators(COMPLETE)
        if chance.random() < 0.7:
            world.run_controllers()
        if chance.random() < 0.05:
            operator = Operator(world)
            world.down = False
            await operator.relist()
        operator.hear_some(chance, loss=0.1)
        await operator.reconcile()
    world.down = False
    return operator


async def settle(world: World, operator: Operator) -> None:
    """No fault any more: one list, and looks until nothing is done."""
    chance = random.Random(0)
    world.change(JOB, {"spec": {"suspend": False}})
    await operator.relist()
    for _ in range(20):
        world.now += timedelta(seconds=10)
        world.run_controllers()
        operator.hear_some(chance, loss=0)
        operator.hear_the_rest()
        before = world.num_requests
        assert await operator.reconcile()
        if world.num_requests == before:
            return
    pytest.fail("the reconciler never comes to rest")


@pytest.fixture
def world() -> World:
    """Somewhere with a job."""
    made = World()
    made.create(Kind.DistTrainJob, job())
    return made


def when_at_rest(world: World, happens: Callable[[Operator], Awaitable[None]]) -> None:
    """Let something happen to an operator whose job has all it shall have."""

    async def scenario() -> None:
        operator = Operator(world)
        await operator.relist()
        await settle(world, operator)
        await happens(operator)

    asyncio.run(scenario())


def among_faults(world: World, seed: int) -> None:
    """Let much happen to a job, and then nothing any more."""

    async def scenario() -> None:
        await settle(world, await faults(world, random.Random(seed), end_at=-1))

    asyncio.run(scenario())


@pytest.mark.parametrize("seed", SEEDS)
def test_after_faults_a_job_has_all_it_shall_have_and_rests(world: World, seed: int) -> None:
    among_faults(world, seed)

    found = children(world)
    assert set(found) == set(CHILDREN)
    wanted = world.objects[JOB]["spec"]["replicas"]["count"]
    assert found[Kind.ReplicaSet]["spec"]["replicas"] == wanted
    assert found[Kind.StatefulSet]["spec"]["replicas"] == 2
    assert found[Kind.Job]["spec"]["suspend"] is False
    assert world.objects[JOB]["status"]["phase"] == "Running"


@pytest.mark.parametrize("seed", SEEDS)
def test_after_faults_a_job_has_whole_replicas_of_several_processes(seed: int) -> None:
    world = World()
    world.create(Kind.DistTrainJob, job(replicas={"count": 3, "partitions": 2}))

    among_faults(world, seed)

    count = world.objects[JOB]["spec"]["replicas"]["count"]
    sets = {
        name: body["spec"]["replicas"]
        for (kind, _, name), body in world.objects.items()
        if kind is Kind.StatefulSet
    }
    assert sets == {"job-shard": 2} | {f"job-replica-{index}": 2 for index in range(count)}
    assert Kind.ReplicaSet not in children(world)
    status = world.objects[JOB]["status"]
    assert (status["phase"], status["readyReplicas"]) == ("Running", count)
    names = {body["metadata"]["name"] for body in pods(world)}
    members = {f"job-replica-{index}-{process}" for index in range(count) for process in range(2)}
    assert members == {name for name in names if name.startswith("job-replica")}


@pytest.mark.parametrize("seed", SEEDS)
def test_after_its_end_nothing_of_a_job_is_created(world: World, seed: int) -> None:
    chance = random.Random(seed)

    async def scenario() -> int:
        operator = Operator(world)
        await operator.relist()
        await operator.reconcile()
        world.run_controllers()
        world.finish_coordinators(COMPLETE)
        operator.hear_some(chance, loss=0)
        await operator.reconcile()
        assert told_ends(world.objects[JOB]) or operator.pending
        await operator.relist()
        await operator.reconcile()
        created = len(made_by_the_operator(world))
        await settle(world, await faults(world, chance, end_at=-1))
        return created

    created = asyncio.run(scenario())

    assert len(made_by_the_operator(world)) == created
    assert world.objects[JOB]["status"]["phase"] == "Complete"
    for kind, body in children(world).items():
        if kind in WORKLOADS and kind is not Kind.Job:
            assert body["spec"]["replicas"] == 0


def told_ends(job: dict[str, Any]) -> set[tuple[str, ...]]:
    """How its status says that it ended, and when."""
    told = ("type", "reason", "message", "lastTransitionTime")
    found = job.get("status", {}).get("conditions", [])
    over = [each for each in found if each["type"] in set(EndPhase) and each["status"] == "True"]
    return {tuple(each[name] for name in told) for each in over}


def made_by_the_operator(world: World) -> list[Any]:
    return [key for key in world.created if key[0] in {*CHILDREN, Kind.Secret}]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_that_ends_among_faults_ends_once(world: World, seed: int) -> None:
    chance = random.Random(seed)
    ends = STEPS - 20

    async def scenario() -> None:
        operator = await faults(world, chance, end_at=ends)
        await settle(world, operator)

    asyncio.run(scenario())

    jobs = [body for kind, _, body in world.events if kind is Kind.DistTrainJob]
    assert len({end for body in jobs for end in told_ends(body)}) <= 1


def test_a_new_job_of_the_same_name_waits_for_the_old_ones_objects(
    world: World,
) -> None:
    first = world.find(JOB)

    async def scenario() -> None:
        operator = Operator(world)
        await operator.relist()
        await operator.reconcile()
        leftover = world.objects[SERVICE]
        world.delete(JOB)
        world.put(Kind.Service, leftover, "ADDED")
        world.create(Kind.DistTrainJob, job())
        await operator.relist()
        await operator.reconcile()
        kinds = {each["type"] for each in world.objects[JOB]["status"]["conditions"]}
        assert "WaitingForPrevious" in kinds
        assert world.objects[SERVICE]["spec"] == leftover["spec"]
        world.delete(SERVICE)
        await settle(world, operator)

    asyncio.run(scenario())

    (owner,) = world.objects[SERVICE]["metadata"]["ownerReferences"]
    assert owner["uid"] != first["metadata"]["uid"]


def test_what_fails_again_and_again_is_told_until_it_goes_well(world: World) -> None:
    class Forbidding(FakeClient):
        async def create(self, kind: Kind, body: dict[str, Any], *, dry_run: bool = False) -> Any:
            if kind is Kind.Service and forbids:
                message = "services is forbidden"
                raise Forbidden(message)
            return await super().create(kind, body, dry_run=dry_run)

    def told() -> dict[str, str]:
        conditions = world.objects[JOB].get("status", {}).get("conditions", [])
        return {each["type"]: each["message"] for each in conditions}

    async def scenario() -> None:
        operator = Operator(world, Forbidding(world))
        await operator.relist()
        for failures in range(4):
            assert "ReconcileError" not in told()
            with pytest.raises(Forbidden):
                await operator.reconciler.look(KEY, failures)
        assert told()["ReconcileError"] == "services is forbidden"
        forbids.clear()
        await settle(world, operator)

    forbids = ["services"]
    asyncio.run(scenario())

    assert "ReconcileError" not in told()


def test_keys_deleted_by_hand_are_made_anew_and_all_start_again_with_them(world: World) -> None:
    async def happens(operator: Operator) -> None:
        (secret,) = [key for key in world.objects if key[0] is Kind.Secret]
        before = {body["metadata"]["uid"] for body in pods(world)}
        world.delete(secret)
        stuck = pods(world)[0]
        place = (Kind.Pod, KEY.namespace, stuck["metadata"]["name"])
        waiting = {"name": "disttrain", "state": {"waiting": {"reason": "ContainerCreating"}}}
        status = {"phase": "Pending", "conditions": [], "containerStatuses": [waiting]}
        world.change(place, {"status": status})
        world.now += timedelta(minutes=2)
        operator.hear_some(random.Random(0), loss=0)
        assert await operator.reconcile()

        assert secret in world.objects
        left = {body["metadata"]["uid"] for body in pods(world)}
        assert left & before == {stuck["metadata"]["uid"]}
        assert [event["reason"] for event in told(world)].count("KeysReplaced") == 1

    when_at_rest(world, happens)


def test_however_often_a_coordinator_is_told_to_end_the_next_one_comes_at_once(
    world: World,
) -> None:
    async def turn(operator: Operator) -> None:
        world.run_controllers()
        operator.hear_some(random.Random(0), loss=0)
        assert await operator.reconcile()

    async def happens(operator: Operator) -> None:
        started = operator.inventory.at(KEY).children[COORDINATOR_JOB].started
        for suspends in [False] * 3 + [True] * 5:
            before = {body["metadata"]["uid"] for body in coordinators(world)}
            world.now += timedelta(seconds=5)
            if suspends:
                world.change(JOB, {"spec": {"suspend": True}})
                await turn(operator)
                await turn(operator)
                assert coordinators(world) == []
                world.change(JOB, {"spec": {"suspend": False}})
            else:
                (pod,) = coordinators(world)
                world.delete((Kind.Pod, KEY.namespace, pod["metadata"]["name"]))
            for _ in range(3):
                await turn(operator)
            (pod,) = coordinators(world)
            assert pod["metadata"]["uid"] not in before
            found = operator.inventory.at(KEY).children[COORDINATOR_JOB].started
            # Resumed, it begins anew; drained, it does not.
            assert (found == started) is not suspends

    when_at_rest(world, happens)


COORDINATOR_JOB = (Kind.Job, "job-coordinator")


def coordinators(world: World) -> list[dict[str, Any]]:
    role = "app.kubernetes.io/component"
    return [body for body in pods(world) if body["metadata"]["labels"][role] == "coordinator"]


def test_a_job_whose_time_passes_while_its_end_is_recorded_goes_with_the_next_look(
    world: World,
) -> None:
    class Slow(FakeClient):
        async def merge(self, *arguments: Any) -> Any:
            world.now += timedelta(seconds=3)
            return await super().merge(*arguments)

    async def scenario() -> float | None:
        operator = Operator(world, Slow(world))
        await settle(world, operator)
        world.change(JOB, {"spec": {"ttlSecondsAfterFinished": 2}})
        world.finish_coordinators(COMPLETE)
        operator.hear()
        seconds = await operator.reconciler.look(KEY, 0)
        assert world.objects[JOB]["status"]["phase"] == "Complete"
        await operator.reconcile()
        return seconds

    assert asyncio.run(scenario()) == 0
    assert JOB not in world.objects


def test_a_job_whose_coordinator_was_deleted_unread_is_looked_at_before_it_is_given_up(
    world: World,
) -> None:
    async def happens(operator: Operator) -> None:
        world.finish_coordinators(COMPLETE)
        world.run_controllers()
        # The watch of pods is behind: it has not told that the coordinator ended.
        for event in operator.news():
            if event[0] is not Kind.Pod:
                operator.take(event)
        for pod in list(operator.inventory.at(KEY).pods.values()):
            operator.inventory.drop(pod)
        assert await operator.reconcile()

    when_at_rest(world, happens)

    assert world.objects[JOB]["status"]["phase"] == "Complete"


def test_a_job_whose_deletion_is_told_last_has_nothing_made_again(world: World) -> None:
    async def happens(operator: Operator) -> None:
        world.delete(JOB)
        told = [event for event in operator.news() if event[0] in CHILDREN]
        assert told
        for event in told:
            operator.take(event)
        assert await operator.reconcile()

    when_at_rest(world, happens)

    assert set(children(world)) == {Kind.PersistentVolumeClaim}, "the volume alone is kept"


def told(world: World) -> list[dict[str, Any]]:
    return [body for key, body in world.objects.items() if key[0] is Kind.Event]


def pods(world: World) -> list[dict[str, Any]]:
    return [body for key, body in world.objects.items() if key[0] is Kind.Pod]
