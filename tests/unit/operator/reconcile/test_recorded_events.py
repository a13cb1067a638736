"""Whatever the operator destroys or changes leaves an Event with the reason, and a line of log."""

import asyncio
import json
import logging
from datetime import timedelta
from typing import Any

import pytest

from builders import many_jobs
from builders.fake_cluster import FakeClient, World
from builders.operator_in_memory import OperatorInMemory
from disttrain_operator.errors import Unavailable
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.observed.records import JobKey

KEY = JobKey(many_jobs.SPACE, "digits")
JOB = (Kind.DistTrainJob, *KEY)
COORDINATOR = (Kind.Job, KEY.namespace, "digits-coordinator")
SUSPENDED = {"suspend": True}
COMPLETE = json.dumps({"phase": "Complete", "reason": "EpochsDone", "message": ""})


class Operator(OperatorInMemory):
    """One operator with one job that runs."""

    def __init__(self, client: FakeClient | None = None, **spec: Any) -> None:
        super().__init__(World() if client is None else client._world, client)
        body = many_jobs.job(KEY.name)
        written = {"metadata": body["metadata"], "spec": {**body["spec"], **spec}}
        self.world.create(Kind.DistTrainJob, written)
        self.turn()
        self.turn()

    def turn(self, seconds: float = 5) -> None:
        """Hear of all that happened, look, and let the cluster follow."""
        self.world.now += timedelta(seconds=seconds)
        self.hear()
        asyncio.run(self.reconciler.look(KEY, 0))
        self.world.run_controllers()

    def told(self, reason: str) -> list[tuple[str, int]]:
        """The Events of a reason: message and count."""
        found = [body for (kind, *_), body in self.world.objects.items() if kind is Kind.Event]
        return [(each["message"], each["count"]) for each in found if each["reason"] == reason]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def test_a_pod_removed_by_force_is_told_with_its_node(log: pytest.LogCaptureFixture) -> None:
    operator = Operator()
    name = next(name for kind, _, name in operator.world.objects if kind is Kind.Pod)
    gone = {"deletionTimestamp": operator.world.now.isoformat()}
    place = (Kind.Pod, KEY.namespace, name)
    uid = operator.world.objects[place]["metadata"]["uid"]
    operator.world.change(place, {"metadata": gone, "spec": {"nodeName": "n1"}})

    operator.turn(seconds=40)

    ((message, _),) = operator.told("PodRemoved")
    assert f"pod {name} was deleted by force: its node n1 is gone" in message
    assert message in log.text
    # A StatefulSet's next pod has its name.
    after = operator.world.objects.get(place)
    assert after is None or after["metadata"]["uid"] != uid


def test_a_restart_of_all_processes_names_the_pod_and_the_rule(
    log: pytest.LogCaptureFixture,
) -> None:
    rule = {"exitCodes": [7], "action": "RestartJobFromCheckpoint"}
    operator = Operator(failurePolicy={"rules": [rule]})
    name = next(name for kind, _, name in operator.world.objects if kind is Kind.Pod)
    died = {"exitCode": 7, "reason": "Error", "finishedAt": operator.world.now.isoformat()}
    container = {"name": "disttrain", "restartCount": 1, "lastState": {"terminated": died}}
    status = {"phase": "Running", "containerStatuses": [{**container, "state": {"running": {}}}]}
    operator.world.change((Kind.Pod, KEY.namespace, name), {"status": status})

    operator.turn()

    ((message, _),) = operator.told("JobRestarted")
    assert f"pod {name} failed, and spec.failurePolicy.rules[0] (exit code 7, Error)" in message
    assert message in log.text


def test_a_coordinators_job_that_is_made_anew_is_told(log: pytest.LogCaptureFixture) -> None:
    operator = Operator()
    for _ in range(2):
        (pod,) = [key for key in operator.world.objects if key[0] is Kind.Pod and "coord" in key[2]]
        operator.world.delete(pod)
        operator.world.run_controllers()
        operator.turn()
        operator.turn()

    ((message, count),) = operator.told("JobRenewed")
    assert "Job digits-coordinator was deleted and made anew" in message
    assert count == 2
    assert log.text.count(message) == 2


def test_workloads_made_anew_from_other_templates_are_told_one_by_one(
    log: pytest.LogCaptureFixture,
) -> None:
    operator = Operator(suspend=True)
    operator.world.change(JOB, {"spec": {"suspend": False}})
    operator.turn()
    operator.world.change(JOB, {"spec": {"suspend": True}})
    for _ in range(3):
        operator.turn()
    template = {"spec": {"nodeSelector": {"pool": "spot"}}}
    operator.world.change(JOB, {"spec": {"suspend": False, "replicas": {"template": template}}})

    operator.turn()

    told = sorted(message.split(":")[0] for message, _ in operator.told("JobRenewed"))
    assert told == [
        "Job digits-coordinator was deleted and made anew",
        "ReplicaSet digits-replica was deleted and made anew",
        "StatefulSet digits-shard was deleted and made anew",
    ]


def test_what_was_made_before_a_name_was_seen_to_be_taken_is_told_as_it_goes(
    log: pytest.LogCaptureFixture,
) -> None:
    world = World()
    namespace = KEY.namespace
    metadata = {"namespace": namespace, "name": "digits-coordinator"}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": SUSPENDED}
    world.create(Kind.Job, body)

    operator = Operator(FakeClient(world))

    assert {key[2] for key in world.objects if key[0] in WORKLOADS} == {"digits-coordinator"}
    told = operator.told("TakenBack")
    assert {message.partition(" was made and deleted again: ")[0] for message, _ in told} == {
        "StatefulSet digits-shard",
        "ReplicaSet digits-replica",
    }
    for message, _ in told:
        assert "the name of Job digits-coordinator is taken" in message
        assert message in log.text


def test_what_somebody_deleted_is_told_as_it_is_made_again(
    log: pytest.LogCaptureFixture,
) -> None:
    operator = Operator()
    operator.world.delete((Kind.Service, KEY.namespace, "digits"))

    operator.turn()

    ((recreated, _),) = operator.told("ChildRecreated")
    assert recreated.startswith("Service digits of the running job was missing")
    assert recreated in log.text


def test_scaling_is_told_with_the_numbers_each_time(log: pytest.LogCaptureFixture) -> None:
    operator = Operator(replicas={"count": 2})
    for count in (3, 5):
        operator.world.change(JOB, {"spec": {"replicas": {"count": count}}})
        operator.turn()

    ((message, number),) = operator.told("Scaled")
    assert "ReplicaSet digits-replica was scaled from 3 to 5" in message
    assert number == 2
    assert "ReplicaSet digits-replica was scaled from 2 to 3" in log.text


def test_what_stops_with_the_job_is_in_the_log_and_its_condition_tells_people(
    log: pytest.LogCaptureFixture,
) -> None:
    operator = Operator()
    operator.world.finish_coordinators(COMPLETE)
    operator.turn()

    assert operator.told("Scaled") == []
    assert len(operator.told("Complete")) == 1
    assert f"{KEY}: ended as Complete, EpochsDone" in log.text
    assert "StatefulSet digits-shard was scaled from" in log.text
    assert "to 0: the job has ended" in log.text


def test_a_deadline_is_told_and_logged(log: pytest.LogCaptureFixture) -> None:
    operator = Operator(activeDeadlineSeconds=60)

    operator.turn(seconds=100)

    ((message, _),) = operator.told("Failed")
    assert "spec.activeDeadlineSeconds (60)" in message
    assert "ended as Failed, DeadlineExceeded" in log.text


def test_a_job_that_is_deleted_in_its_time_is_told_of_afterwards(
    log: pytest.LogCaptureFixture,
) -> None:
    operator = Operator(ttlSecondsAfterFinished=60)
    operator.world.finish_coordinators(COMPLETE)
    operator.turn()
    assert operator.told("JobDeleted") == []

    operator.turn(seconds=120)

    ((message, _),) = operator.told("JobDeleted")
    assert "which ended Complete" in message
    assert message in log.text
    assert JOB not in operator.world.objects


def test_an_event_that_cannot_be_written_is_no_error(log: pytest.LogCaptureFixture) -> None:
    class Silent(FakeClient):
        async def create(self, kind: Kind, body: dict[str, Any], *, dry_run: bool = False) -> Any:
            if kind is Kind.Event and body["reason"] == "Scaled":
                message = "no answer"
                raise Unavailable(message)
            return await super().create(kind, body, dry_run=dry_run)

    operator = Operator(Silent(World()), replicas={"count": 2})
    operator.world.change(JOB, {"spec": {"replicas": {"count": 3}}})

    operator.turn()

    assert "no Event tells of this: no answer" in log.text


def test_a_problem_that_comes_back_is_counted_once_more() -> None:
    operator = Operator()
    place = next(key for key in operator.world.objects if key[0] is Kind.Pod)
    for _ in range(2):
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
        container = {"name": "disttrain", "restartCount": 0, "state": waiting}
        operator.world.change(
            place, {"status": {"phase": "Pending", "containerStatuses": [container]}}
        )
        operator.turn()
        running = {**container, "state": {"running": {}}}
        operator.world.change(
            place, {"status": {"phase": "Running", "containerStatuses": [running]}}
        )
        operator.turn()

    ((message, count),) = operator.told("ImagePullBackOff")
    assert "no such image" in message
    assert count == 2
