"""An operator whose master secret was replaced while jobs run, on a cluster in memory."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from builders import many_jobs
from builders.fake_cluster import World
from builders.operator_in_memory import OperatorInMemory
from disttrain.job import credentials, pod_layout
from disttrain.job.credentials import Trust
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import stored
from disttrain_operator.observed.records import JobKey
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.signing.authorities import Authorities

KEY = JobKey(many_jobs.SPACE, "counting")
REPLACED = Authorities(bytes(31) + b"1", timedelta(hours=24))


def trust(uid: str) -> Trust:
    return REPLACED.trust(uid, "operator:8443")


def looks(world: World, operator: OperatorInMemory, num: int = 1) -> None:
    for _ in range(num):
        operator.hear()
        operator.see_everything()
        asyncio.run(operator.reconciler.look(KEY, 0))
        world.run_controllers()


def a_world(**spec: Any) -> World:
    """Where a job runs."""
    made = World()
    made.create(Kind.DistTrainJob, many_jobs.job(KEY.name, **spec))
    looks(made, OperatorInMemory(made), 4)
    return made


@pytest.fixture
def world() -> World:
    return a_world()


def condition(world: World) -> dict[str, Any] | None:
    status = world.objects[Kind.DistTrainJob, *KEY]["status"]
    found = {each["type"]: each for each in status["conditions"]}
    return found.get(ProblemType.AUTHORITY_REPLACED)


def objects(world: World, kind: Kind) -> dict[tuple[Any, ...], dict[str, Any]]:
    return {key: body for key, body in world.objects.items() if key[0] is kind}


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in objects(world, Kind.Pod).values()}


def test_an_operator_that_begins_anew_with_the_same_secret_tells_nothing(world: World) -> None:
    looks(world, OperatorInMemory(world), 3)
    assert condition(world) is None


def test_a_replaced_master_secret_is_told_and_mended_as_it_says(world: World) -> None:
    before, operator = uids(world), OperatorInMemory(world, trust=trust)
    world.now += timedelta(minutes=1)
    looks(world, operator, 3)
    told = condition(world)
    assert told is not None
    (secret,) = objects(world, Kind.Secret)
    assert f"delete Secret {secret[2]}" in told["message"]
    events = [each["reason"] for each in objects(world, Kind.Event).values()]
    assert events.count("AuthorityReplaced") == 1
    # Nothing is done by itself: processes that run train on.
    assert uids(world) == before

    world.delete(secret)
    world.now += timedelta(minutes=1)
    looks(world, operator, 4)
    assert condition(world) is None
    assert uids(world).isdisjoint(before)
    content = world.objects[secret]["stringData"][pod_layout.TRUST_KEY]
    known = credentials.parse(content.encode())
    assert isinstance(known, Trust)
    assert known.signer_authority == trust("any").signer_authority

    # Nor is the operator after this one mistaken.
    looks(world, OperatorInMemory(world, trust=trust), 3)
    assert condition(world) is None
    looks(world, OperatorInMemory(world), 3)
    assert condition(world) is not None


def test_a_workload_that_is_made_again_is_of_the_authority_that_the_others_believe(
    world: World,
) -> None:
    def said() -> set[str]:
        found = [objects(world, kind) for kind in WORKLOADS]
        bodies = [body for each in found for body in each.values()]
        return {body["metadata"]["annotations"][stored.AUTHORITY] for body in bodies}

    before, operator = said(), OperatorInMemory(world, trust=trust)
    (lost,) = objects(world, Kind.ReplicaSet)
    world.delete(lost)
    looks(world, operator, 3)
    assert lost in world.objects
    assert said() == before
    assert len(before) == 1


def test_a_copy_of_a_job_is_a_job_of_its_own() -> None:
    copied = World()
    body = many_jobs.job(KEY.name)
    body["metadata"]["annotations"] = {stored.AUTHORITY: "a" * 64}
    copied.create(Kind.DistTrainJob, body)
    looks(copied, OperatorInMemory(copied), 4)
    assert condition(copied) is None


def test_of_a_job_without_certificates_or_of_an_older_operator_nothing_is_told(
    world: World,
) -> None:
    plain = a_world(transport={"encryption": "none"})
    for kind in WORKLOADS:
        for body in objects(world, kind).values():
            del body["metadata"]["annotations"][stored.AUTHORITY]
        for body in objects(plain, kind).values():
            assert stored.AUTHORITY not in body["metadata"]["annotations"]
    for each in (world, plain):
        looks(each, OperatorInMemory(each, trust=trust), 3)
        assert condition(each) is None


def test_whether_the_secret_is_gone_is_looked_at_within_a_minute(world: World) -> None:
    operator = OperatorInMemory(world, trust=trust)
    looks(world, operator, 3)
    operator.hear()
    again = asyncio.run(operator.reconciler.look(KEY, 0))
    assert again is not None
    assert 0 < again <= 60
