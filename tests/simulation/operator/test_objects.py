"""The objects of a job: what they meet, what an upgrade does to them, what they cost."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from builders import many_jobs, operator_jobs
from builders.fake_cluster import FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain.job import certificates
from disttrain_operator.kinds import SHARED, WORKLOADS, Kind
from disttrain_operator.manifests import pod
from disttrain_operator.manifests.children import children, common
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Scale
from disttrain_operator.observed import parsing
from disttrain_operator.observed.records import JobKey
from disttrain_operator.reconcile import desired
from disttrain_operator.signing.endpoint import Endpoint

KEY = JobKey(many_jobs.SPACE, "trino")
JOB = (Kind.DistTrainJob, *KEY)
COMPLETE = json.dumps({"phase": "Complete", "reason": "EpochsDone", "message": ""})
FOREIGN = {"labels": {"team": "platform"}}
ROLES = ("coordinator", "parameterServer", "replicas")


class Counting(FakeClient):
    """Remembers its requests that change something, or look at something alone."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.requests: list[str] = []

    async def create(self, kind: Kind, body: dict[str, Any], *, dry_run: bool = False) -> Any:
        self.requests.append(f"create {kind.name}")
        return await super().create(kind, body, dry_run=dry_run)

    async def review_token(self, token: str, audience: str) -> Any:
        self.requests.append("create TokenReview")
        return await super().review_token(token, audience)

    async def get(self, kind: Kind, namespace: str, name: str) -> Any:
        self.requests.append(f"get {kind.name}")
        return await super().get(kind, namespace, name)

    async def apply(self, kind: Kind, body: dict[str, Any], subresource: str = "") -> Any:
        self.requests.append(f"apply {kind.name}{subresource}")
        return await super().apply(kind, body, subresource)

    async def merge(self, kind: Kind, *arguments: Any) -> Any:
        self.requests.append(f"merge {kind.name}")
        return await super().merge(kind, *arguments)

    async def delete(self, kind: Kind, *arguments: Any, **options: Any) -> None:
        self.requests.append(f"delete {kind.name}")
        await super().delete(kind, *arguments, **options)


class Operator(OperatorInMemory):
    """One incarnation of an operator."""

    def __init__(self, world: World, config: ManifestConfig | None = None) -> None:
        self.counting = Counting(world)
        super().__init__(world, self.counting, config)
        self.see_everything()

    def reconcile(self, key: JobKey = KEY) -> None:
        self.hear()
        asyncio.run(self.reconciler.look(key, 0))

    def settle(self, key: JobKey = KEY) -> None:
        """Turns of controllers and operator, until nothing is to be done."""
        for _ in range(6):
            self.reconcile(key)
            self.world.run_controllers()
            self.world.now += timedelta(seconds=2)


def submit(world: World, key: JobKey = KEY, **spec: Any) -> dict[str, Any]:
    body = many_jobs.job(key.name)
    written = {"metadata": body["metadata"], "spec": {**body["spec"], **spec}}
    return world.create(Kind.DistTrainJob, written)


def own_workloads(world: World) -> list[str]:
    uid = world.objects[JOB]["metadata"]["uid"]
    return [
        kind.name
        for (kind, *_), body in world.objects.items()
        if kind in WORKLOADS
        and any(owner["uid"] == uid for owner in body["metadata"].get("ownerReferences", []))
    ]


DIVIDED: dict[str, Any] = {"replicas": {"count": 2, "partitions": 2}}


def all_children() -> list[tuple[Kind, str, dict[str, Any]]]:
    """Each with what its job asks for."""
    world = World()
    record = parsing.job(submit(world), frozenset())
    context = desired.of(record, ManifestConfig()).context
    assert context is not None
    own = children(context, Scale(shards=2, replicas=2, coordinator=True))
    made = [each.key for each in (*own, *common(KEY.namespace, ManifestConfig()))]
    sets = ["trino-shard", "trino-replica-0", "trino-replica-1"]
    of_several = [(Kind.StatefulSet, name, DIVIDED) for name in sets]
    return [*((*key, {}) for key in made), *of_several]


@pytest.mark.parametrize(("kind", "name", "spec"), all_children())
def test_where_a_name_is_taken_nothing_runs_and_nobody_gets_rights(
    kind: Kind, name: str, spec: dict[str, Any]
) -> None:
    world = World()
    nothing = {"replicas": 0, "suspend": True} if kind in WORKLOADS else {}
    metadata = {"name": name, "namespace": KEY.namespace, **FOREIGN}
    foreign = {"metadata": metadata, "spec": nothing}
    before = world.create(kind, foreign)
    submit(world, **spec)
    operator = Operator(world)

    operator.reconcile()
    tried = world.created.copy()
    for _ in range(3):
        assert own_workloads(world) == []
        world.now += timedelta(seconds=6)
        operator.reconcile()

    assert world.created == tried, "making the rest again each time would run it for a moment"
    bindings = [body for key, body in world.objects.items() if key[0] is Kind.RoleBinding]
    assert kind in WORKLOADS or [each for each in bindings if each != before] == []
    assert world.objects[kind, KEY.namespace, name] == before
    told = {each["type"]: each["message"] for each in world.objects[JOB]["status"]["conditions"]}
    assert name in told["NameConflict"]

    world.delete((kind, KEY.namespace, name))
    operator.settle()
    assert world.objects[JOB]["status"]["phase"] == "Running"


def test_an_own_object_of_the_namespace_is_shared() -> None:
    world = World()
    submit(world)
    Operator(world).settle()
    other = JobKey(KEY.namespace, "other")
    submit(world, other)

    # Another incarnation of the operator, which has not been told of what is shared.
    operator = Operator(world)
    for kind in SHARED:
        shared = operator.inventory.at(KEY.common).children
        shared.pop(next(key for key in shared if key[0] is kind))
    operator.settle(other)

    assert world.objects[Kind.DistTrainJob, *other]["status"]["phase"] == "Running"
    for kind in SHARED:
        assert len([key for key in world.objects if key[0] is kind]) == 1


def pods(world: World) -> set[str]:
    return {body["metadata"]["uid"] for key, body in world.objects.items() if key[0] is Kind.Pod}


def images(world: World) -> set[str]:
    bodies = (body for key, body in world.objects.items() if key[0] in WORKLOADS)
    templates = (body["spec"]["template"]["spec"]["containers"] for body in bodies)
    return {each["image"] for containers in templates for each in containers}


def scale(world: World) -> None:
    world.change(JOB, {"spec": {"replicas": {"count": 4}}})


def suspend_and_resume(world: World) -> None:
    world.change(JOB, {"spec": {"suspend": not world.objects[JOB]["spec"].get("suspend", False)}})


def lose_a_set(world: World) -> None:
    names = [key for key in world.objects if key[0] in WORKLOADS and "trino-replica" in key[2]]
    world.delete(names[-1])


def lose_the_coordinator(world: World) -> None:
    world.delete((Kind.Job, KEY.namespace, "trino-coordinator"))


DEEDS: list[Callable[[World], None]] = [
    *(scale, suspend_and_resume, suspend_and_resume, lose_a_set, lose_the_coordinator),
]


@pytest.mark.parametrize("spec", [{}, DIVIDED], ids=["one process", "several processes"])
def test_an_upgrade_touches_nothing_that_runs_and_a_job_is_what_it_was_through_all(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any]
) -> None:
    world = World()
    submit(world, **spec)
    Operator(world).settle()
    before, image = pods(world), images(world)

    # Another image, other templates, and a CRD with a default of its own.
    monkeypatch.setattr(pod, "GRACE_SECONDS", 7)
    monkeypatch.setattr(pod, "_STARTUP_SECONDS", 8)
    world.change(JOB, {"spec": {"coordinator": {"leaseSeconds": 31.0}}})
    new = Operator(world, ManifestConfig(image="other:2", image_pull_secrets=("other",)))
    new.settle()
    assert pods(world) == before
    for deed in DEEDS:
        deed(world)
        new.settle()
        assert images(world) == image

    monkeypatch.undo()
    old = Operator(world)
    running = pods(world)
    old.settle()
    assert pods(world) == running
    for deed in DEEDS:
        deed(world)
        old.settle()
        assert images(world) == image
    assert world.objects[JOB]["status"]["phase"] == "Running"
    world.finish_coordinators(COMPLETE)
    old.settle()
    assert world.objects[JOB]["status"]["phase"] == "Complete"


def test_a_name_that_is_taken_keeps_a_job_from_growing_and_nothing_else() -> None:
    world = World()
    submit(world, **DIVIDED)
    operator = Operator(world)
    operator.settle()
    running = pods(world)
    foreign = {"metadata": {"name": "trino-replica-3", "namespace": KEY.namespace, **FOREIGN}}
    taken = world.create(Kind.StatefulSet, foreign | {"spec": {"replicas": 0}})

    scale(world)
    operator.settle()
    operator.settle()

    assert pods(world) > running, "what can be made is made"
    still = world.find((Kind.StatefulSet, KEY.namespace, "trino-replica-3"))
    assert still["metadata"]["uid"] == taken["metadata"]["uid"]
    status = world.objects[JOB]["status"]
    told = {each["type"]: each["message"] for each in status["conditions"]}
    assert "trino-replica-3" in told["NameConflict"]
    assert (status["phase"], status["readyReplicas"]) == ("Running", 3)

    world.delete((Kind.StatefulSet, KEY.namespace, "trino-replica-3"))
    operator.settle()
    operator.settle()
    assert world.objects[JOB]["status"]["readyReplicas"] == 4
    told_events = [body for key, body in world.objects.items() if key[0] is Kind.Event]
    scaled = [each["message"] for each in told_events if each["reason"] == "Scaled"]
    assert scaled == ["replicas made: 3; the job's spec says so"]


def test_a_replica_that_is_taken_away_takes_all_its_pods_along() -> None:
    world = World()
    submit(world, parameterServer={"shards": 3}, replicas={"count": 4, "partitions": 3})
    operator = Operator(world)
    operator.settle()
    before = {key[2] for key in world.objects if key[0] is Kind.Pod}

    world.change(JOB, {"spec": {"replicas": {"count": 2}}})
    operator.settle()

    after = {key[2] for key in world.objects if key[0] is Kind.Pod}
    gone = {f"trino-replica-{index}-{process}" for index in (2, 3) for process in range(3)}
    assert before - after == gone
    assert world.objects[JOB]["status"]["replicas"] == 2


def made_by_an_older_operator(world: World, owner: str) -> tuple[Kind, str, str]:
    """Keep the replicas by a Deployment of an owner, and no workload with its job's objects."""
    submit(world)
    Operator(world).settle()
    for key, body in list(world.objects.items()):
        if key[0] in WORKLOADS:
            body["metadata"]["annotations"] = {}
    replicas = world.objects[Kind.ReplicaSet, KEY.namespace, "trino-replica"]
    metadata = {"namespace": KEY.namespace, "name": "trino-replica"}
    owners = [{"kind": "DistTrainJob", "name": KEY.name, "uid": owner}]
    deployment = {"metadata": {**metadata, "ownerReferences": owners}, "spec": {"replicas": 2}}
    made = world.create(Kind.Deployment, deployment)["metadata"]
    kept_by = {"kind": "Deployment", "name": made["name"], "uid": made["uid"]}
    replicas["metadata"]["ownerReferences"] = [kept_by]
    return Kind.Deployment, KEY.namespace, "trino-replica"


def test_a_deployment_that_an_older_operator_made_ends_with_its_job() -> None:
    world = World()
    key = made_by_an_older_operator(world, "uid-1-disttrainjob")
    assert world.objects[JOB]["metadata"]["uid"] == "uid-1-disttrainjob"
    operator = Operator(world)
    operator.reconcile()
    before = len(operator.counting.requests)
    operator.reconcile()
    assert len(operator.counting.requests) == before, "while it runs nothing is asked for"
    assert world.find(key)["spec"]["replicas"] == 2

    world.change(JOB, {"spec": {"suspend": True}})
    operator.settle()
    assert world.find(key)["spec"]["replicas"] == 0

    world.change(JOB, {"spec": {"suspend": False}})
    operator.settle()
    assert world.find(key)["spec"]["replicas"] == 2


def test_a_deployment_of_somebody_else_is_left_alone() -> None:
    world = World()
    key = made_by_an_older_operator(world, "of-another")
    operator = Operator(world)
    world.change(JOB, {"spec": {"suspend": True}})
    operator.settle()

    assert world.find(key)["spec"]["replicas"] == 2


def test_a_queue_sends_a_job_to_other_nodes_while_it_is_suspended() -> None:
    world = World()
    submit(world, suspend=True)
    operator = Operator(world)
    for pool in ("spot", "reserved"):
        template = {"spec": {"nodeSelector": {"pool": pool}}}
        given = {role: {"template": template} for role in ROLES}
        world.change(JOB, {"spec": {"suspend": False, **given}})
        operator.settle()
        assert world.objects[JOB]["status"]["phase"] == "Running"
        found = [body for key, body in world.objects.items() if key[0] in WORKLOADS]
        selected = [each["spec"]["template"]["spec"]["nodeSelector"] for each in found]
        assert selected == [{"pool": pool}] * 3
        world.change(JOB, {"spec": {"suspend": True}})
        operator.settle()
        assert pods(world) == set()


def sign_all(world: World, operator: Operator, key: JobKey) -> None:
    """Let every pod of a job ask for its certificate, as its process does once at each start."""
    asked = Endpoint(operator.client, operator.inventory, operator_jobs.AUTHORITIES)
    operator.hear()
    for seen in operator.inventory.at(key).pods.values():
        token = f"{key.namespace}/{seen.name}/{seen.uid}"
        body = {
            "job": key.name,
            "instance": f"{seen.uid}.1",
            "request": certificates.new_request().text,
        }
        answer = asyncio.run(asked.answer(token, json.dumps(body).encode()))
        assert isinstance(answer, str), answer


@pytest.mark.parametrize(
    ("shards", "replicas", "until_running", "whole_life"),
    # Several shards have a PodDisruptionBudget. Replicas of several processes have a set each,
    # which is stopped by itself, and together a NetworkPolicy and the Event of a warning.
    [
        (1, {"count": 2}, 7, 13),
        (2, {"count": 2}, 8, 14),
        (2, {"count": 3, "partitions": 2}, 9 + 3, 14 + 2 * 3),
        (2, {"count": 20, "partitions": 2}, 9 + 20, 14 + 2 * 20),
    ],
)
def test_a_job_costs_few_requests_and_one_more_for_each_pods_certificate(
    shards: int, replicas: dict[str, int], until_running: int, whole_life: int
) -> None:
    world = World()
    submit(world)
    operator = Operator(world)
    operator.settle()
    other, requests = JobKey(KEY.namespace, "other"), operator.counting.requests
    requests.clear()

    volume = {"claimName": many_jobs.CLAIM}
    sized = {"checkpoint": {"volume": volume}, "parameterServer": {"shards": shards}}
    submit(world, other, ttlSecondsAfterFinished=60, replicas=replicas, **sized)
    operator.settle(other)
    job = (Kind.DistTrainJob, *other)
    assert world.objects[job]["status"]["phase"] == "Running"
    assert len(requests) <= until_running, requests
    sign_all(world, operator, other)
    reviews = [each for each in requests if each == "create TokenReview"]
    assert len(reviews) == 1 + shards + replicas["count"] * replicas.get("partitions", 1)
    until_running += len(reviews)
    whole_life += len(reviews)
    assert len(requests) <= until_running, requests
    secrets = [key for key in world.created if key[0] is Kind.Secret and key[2].startswith("other")]
    assert len(secrets) == 1

    world.finish_coordinators(COMPLETE)
    operator.settle(other)
    assert world.objects[job]["status"]["phase"] == "Complete"
    world.now += timedelta(seconds=61)
    operator.reconcile(other)
    assert job not in world.objects
    assert len(requests) <= whole_life, requests
