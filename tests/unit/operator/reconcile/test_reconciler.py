"""One look at a job, where something comes between its steps."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from builders import many_jobs
from builders.fake_cluster import FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain_operator.errors import Conflict, Unavailable
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.observed.records import JobKey
from disttrain_operator.telemetry.metrics import REGISTRY

COMPLETE = json.dumps({"phase": "Complete", "reason": "EpochsDone", "message": ""})


class Operator(OperatorInMemory):
    """One operator with one job, `digits`, which has all it shall have."""

    def __init__(self, world: World, client: FakeClient | None = None, **spec: Any) -> None:
        super().__init__(world, client)
        made = submit(world, **spec)["metadata"]
        self.key = JobKey(made["namespace"], made["name"])
        self.hear()
        self.reconcile()
        world.run_controllers()

    def reconcile(self, num_failures: int = 0) -> None:
        asyncio.run(self.reconciler.look(self.key, num_failures))


class Failing(FakeClient):
    """An API server that takes no status now and then."""

    fails = False

    async def apply(self, kind: Kind, body: dict[str, Any], subresource: str = "") -> Any:
        if subresource and self.fails:
            message = "no answer"
            raise Unavailable(message)
        return await super().apply(kind, body, subresource)


def submit(world: World, **spec: Any) -> dict[str, Any]:
    body = many_jobs.job("digits")
    written = {"metadata": body["metadata"], "spec": {**body["spec"], **spec}}
    return world.create(Kind.DistTrainJob, written)


def num_starts() -> float:
    return REGISTRY.get_sample_value("disttrain_operator_starting_seconds_count") or 0.0


def test_a_status_that_had_to_be_written_twice_is_counted_once() -> None:
    world = World()
    client = Failing(world)
    operator = Operator(world, client)
    before = num_starts()

    client.fails = True
    operator.hear()
    for failures in range(2):
        with pytest.raises(Unavailable):
            operator.reconcile(failures)
    assert num_starts() == before

    client.fails = False
    operator.reconcile()
    operator.reconcile()
    assert num_starts() == before + 1


def test_how_a_job_ended_is_written_before_anything_of_it_stops() -> None:
    world = World()
    client = Failing(world)
    operator = Operator(world, client)
    world.finish_coordinators(COMPLETE)
    client.fails = True
    before = len(world.events)
    operator.hear()
    with pytest.raises(Unavailable):
        operator.reconcile()
    assert not [kind for kind, _, _ in world.events[before:] if kind in WORKLOADS]

    client.fails = False
    operator.reconcile()

    first, *others = [event for event in world.events[before:] if event[0] is not Kind.Event]
    assert (first[0], first[2]["status"]["phase"]) == (Kind.DistTrainJob, "Complete")
    assert {kind for kind, _, _ in others} == {Kind.StatefulSet, Kind.ReplicaSet}


def test_of_a_job_whose_end_somebody_overwrote_nothing_is_made_again() -> None:
    world = World()
    operator = Operator(world)
    world.finish_coordinators(COMPLETE)
    operator.hear()
    operator.reconcile()
    for key in [key for key in world.objects if key[0] in {Kind.Pod, Kind.Job, Kind.StatefulSet}]:
        world.delete(key)
    overwritten = {**world.find((Kind.DistTrainJob, *operator.key)), "status": {}}
    world.put(Kind.DistTrainJob, overwritten, "MODIFIED")
    before = list(world.created)

    restarted = OperatorInMemory(world)
    restarted.see_everything()
    asyncio.run(restarted.reconciler.look(operator.key, 0))

    assert world.created == before
    told = world.find((Kind.DistTrainJob, *operator.key))["status"]
    assert (told["phase"], conditions(operator)["Complete"]["reason"]) == ("Complete", "EpochsDone")


def test_of_another_job_of_the_name_the_end_is_not_written() -> None:
    class Meeting(FakeClient):
        async def create(self, kind: Kind, body: dict[str, Any], *, dry_run: bool = False) -> Any:
            if kind is Kind.Event:
                world.delete((Kind.DistTrainJob, *operator.key))
                submit(world)
            return await super().create(kind, body, dry_run=dry_run)

    world = World()
    operator = Operator(world, Meeting(world))
    world.finish_coordinators(COMPLETE)
    operator.hear()

    with pytest.raises(Conflict, match="another job by now"):
        operator.reconcile()

    assert "status" not in world.find((Kind.DistTrainJob, *operator.key))


def test_a_change_that_comes_just_before_a_status_is_looked_at() -> None:
    class Meeting(FakeClient):
        meets = False

        async def apply(self, kind: Kind, body: dict[str, Any], subresource: str = "") -> Any:
            if subresource and self.meets:
                world.change((Kind.DistTrainJob, *operator.key), {"spec": {"suspend": True}})
            return await super().apply(kind, body, subresource)

    world = World()
    client = Meeting(world)
    operator = Operator(world, client)
    operator.hear()
    client.meets = True
    assert asyncio.run(operator.reconciler.look(operator.key, 0)) == 0, "no watch tells of it"

    client.meets = False
    operator.reconcile()

    assert world.find((Kind.Job, operator.key.namespace, "digits-coordinator"))["spec"]["suspend"]
    operator.hear()
    assert asyncio.run(operator.reconciler.look(operator.key, 0)) is None


def test_of_shards_that_cannot_be_made_the_events_are_asked() -> None:
    world = World()
    operator = Operator(world)
    operator.hear()
    operator.reconcile()
    shards = world.find((Kind.StatefulSet, operator.key.namespace, "digits-shard"))
    for number, about in enumerate((shards["metadata"], {"uid": "another"})):
        metadata = {"namespace": operator.key.namespace, "name": f"event-{number}"}
        said = {"reason": "FailedCreate", "message": f"exceeded quota {number}"}
        told = {"involvedObject": {"uid": about["uid"]}, **said}
        world.create(Kind.Event, {"metadata": metadata, **told})
    lost = {"replicas": 0, "readyReplicas": 0}
    world.change((Kind.StatefulSet, operator.key.namespace, "digits-shard"), {"status": lost})
    operator.hear()
    operator.reconcile()
    assert "CannotStart" not in conditions(operator)

    world.now += timedelta(seconds=10)
    assert asyncio.run(operator.reconciler.look(operator.key, 0)) is not None
    told = conditions(operator)["CannotStart"]
    assert (told["reason"], told["message"][-16:]) == ("FailedCreate", "exceeded quota 0")

    before = world.num_requests
    operator.hear()
    operator.reconcile()
    assert world.num_requests == before, "what was told is not asked again at once"


def conditions(operator: Operator) -> dict[str, Any]:
    status = operator.world.find((Kind.DistTrainJob, *operator.key))["status"]
    return {each["type"]: each for each in status["conditions"]}


def test_a_job_among_many_has_its_objects_before_a_status() -> None:
    world = World()
    operator = Operator(world)
    world.create(Kind.DistTrainJob, many_jobs.job("second"))
    operator.hear()
    key = JobKey(operator.key.namespace, "second")

    def reconcile() -> float | None:
        return asyncio.run(operator.reconciler.look(key, 0, crowded=True))

    assert 0 < (reconcile() or 0) <= 10
    assert (Kind.ReplicaSet, key.namespace, "second-replica") in world.objects
    assert "status" not in world.find((Kind.DistTrainJob, *key))

    world.run_controllers()
    operator.hear()
    reconcile()

    assert world.find((Kind.DistTrainJob, *key))["status"]["phase"] == "Running"
    events = [body for kind, _, body in world.events if kind is Kind.Event]
    told = [each["reason"] for each in events if each["involvedObject"]["name"] == "second"]
    assert told == []


def test_of_a_job_that_is_deleted_in_its_time_nothing_is_kept() -> None:
    world = World()
    operator = Operator(world, ttlSecondsAfterFinished=60)
    world.finish_coordinators(COMPLETE)
    operator.hear()
    operator.reconcile()
    assert operator.reconciler._known

    world.now += timedelta(seconds=120)
    operator.hear()
    operator.reconcile()

    assert (Kind.DistTrainJob, *operator.key) not in world.objects
    assert not operator.reconciler._known


def test_what_was_decided_for_a_job_is_not_done_for_a_new_one_of_its_name() -> None:
    world = World()
    operator = Operator(world)
    operator.hear()
    operator.reconcile()
    job = (Kind.DistTrainJob, *operator.key)
    world.delete(job)
    new = submit(world)["metadata"]["uid"]
    # Watches are late: they tell that what was made is gone, and not yet of the jobs.
    for event in operator.news():
        if event[1] == "DELETED" and event[0] is not Kind.DistTrainJob:
            operator.take(event)
    num_created = len(world.created)

    with pytest.raises(Conflict, match=new):
        operator.reconcile()

    assert len(world.created) == num_created
    assert "status" not in world.objects[job]
    operator.reconcile()
    assert operator.reconciler._known[operator.key].uid == new
    assert len(world.created) > num_created


def test_a_new_job_of_the_name_gets_no_status_of_the_one_before() -> None:
    class Replacing(FakeClient):
        async def apply(self, kind: Kind, body: dict[str, Any], subresource: str = "") -> Any:
            if subresource:
                world.delete((Kind.DistTrainJob, *operator.key))
                submit(world)
            return await super().apply(kind, body, subresource)

    world = World()
    operator = Operator(world)
    operator.reconciler._client = Replacing(world)
    operator.hear()

    operator.reconcile()

    assert "status" not in world.objects[Kind.DistTrainJob, *operator.key]
