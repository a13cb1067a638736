"""What the coordinator writes into the job's object, and when."""

import json
import math
import random
from itertools import pairwise
from typing import Any

import pytest

from builders.batch_machines import RULES, BatchMachine
from builders.machines import Machine
from disttrain.coordinator.journal.state import Evaluation, Saved
from disttrain.coordinator.protocol.reports import Predicted, ReplicaReport, ShardReport
from disttrain.coordinator.status import cluster_status, sections, status
from disttrain.coordinator.status.cluster_status import (
    EVERY_SECONDS,
    LARGEST_BYTES,
    JobObject,
    Patches,
)
from disttrain.coordinator.status.watch import Watch
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.job.status import COORDINATOR_FIELDS, JobStatus
from disttrain.job.status_section import LONGEST_TEXT

JOB = JobObject(name="digits", namespace="team", uid="u-1")


def fields(machine: Machine) -> dict[str, Any]:
    coordinator = machine.coordinator
    return sections.of_object(machine.state, coordinator.stages, coordinator.watch, machine.now)


def an_evaluation(**measures: float) -> Evaluation:
    return Evaluation(epoch=1, samples=32, seconds=1.0, loss=None, measures=measures)


def patches() -> Patches:
    return Patches(JOB, random.Random(1))


def test_the_fields_are_the_coordinators_and_what_their_types_say() -> None:
    machine = Machine()
    shard, *_ = machine.running()
    machine.state.saved = Saved(number=3, time=0.0, samples=16, versions={0: 4})
    heard = ShardReport(
        version=9,
        staleness=(3, 0, 0, 1),
        predicted={
            "0": Predicted(mean_staleness=2.5, error=0.25),
            "1": Predicted(mean_staleness=0.5, error=0.75),
        },
    )
    machine.heartbeat(shard, heard)
    found = fields(machine)
    assert set(found) == set(COORDINATOR_FIELDS) - {"sandblaster"}
    read = JobStatus.model_validate(found)
    assert read.parameter_server is not None
    (seen,) = read.parameter_server.shards
    assert (seen.version, seen.checkpoint_version, seen.updates_at_risk) == (9, 4, 5)
    assert (seen.staleness_p50, seen.staleness_p99) == (0, 3)
    assert read.training is not None
    assert read.training.prediction_error == 0.5
    assert read.parameter_server.ready == 1
    assert read.checkpoint is not None
    assert read.checkpoint.path == "checkpoints/00000003"
    assert read.checkpoint.time == "1970-01-01T00:00:00Z"


def test_a_status_says_how_stale_each_members_pushes_are() -> None:
    machine = Machine()
    shard, replica, *_ = machine.running()
    of_shard = ShardReport(
        staleness=(1, 1), predicted={"0": Predicted(mean_staleness=2.5, error=0.25)}
    )
    machine.heartbeat(shard, of_shard)
    machine.heartbeat(replica, ReplicaReport(staleness=(0, 0, 4)))

    coordinator = machine.coordinator
    told = status.status(machine.state, coordinator.stages, coordinator.watch, machine.now)

    of = {member["name"]: member for member in told["members"]}
    assert (of["shard-0"]["stalenessP50"], of["shard-0"]["stalenessP99"]) == (0, 1)
    assert of["shard-0"]["predicted"] == {"0": {"meanStaleness": 2.5, "error": 0.25}}
    assert (of["replica-0"]["stalenessP50"], of["replica-0"]["stalenessP99"]) == (2, 2)
    assert "predicted" not in of["replica-0"]


@pytest.mark.parametrize(
    ("speed", "loss", "read"),
    [
        (1051.3948, 0.20812, ("1,051", "0.208")),
        (12.3456, 12.3456, ("12.3", "12.3")),
        (999.7, 1234567.8, ("1,000", "1,234,568")),
        (0.0, 1.5e-7, ("0", "1.5e-07")),
        (1.0, math.inf, ("1", "inf")),
        (1.0, math.nan, ("1", "nan")),
        (1.0, None, ("1", None)),
    ],
)
def test_figures_for_lists_of_jobs_are_short(
    speed: float, loss: float | None, read: tuple[str, str | None], monkeypatch: Any
) -> None:
    machine = Machine()
    machine.running()
    monkeypatch.setattr(Watch, "samples_per_second", lambda _: speed)
    machine.coordinator.watch.loss = loss

    training = fields(machine)["training"]

    assert (training["speed"], training.get("recentLoss")) == read


def test_a_checkpoint_is_known_when_it_is_complete() -> None:
    machine = Machine(checkpoint_seconds=1.0)
    machine.running()
    machine.tick(2.0)
    machine.obey()
    assert machine.state.saved is not None
    assert machine.state.saved.number == machine.state.last_checkpoint
    assert machine.state.saved.versions == {0: 1}


def test_a_measure_that_is_no_number_becomes_null() -> None:
    machine = Machine()
    machine.running()
    machine.state.evaluations = [an_evaluation(accuracy=math.nan, speed=2.0)]
    patch = json.loads(cluster_status.encode(JOB, fields(machine)))
    assert patch["status"]["training"]["metrics"].get("accuracy") is None
    assert patch["status"]["training"]["metrics"]["speed"] == 2.0
    assert patch["status"]["training"]["metricsSamples"] == 32
    assert "the measure accuracy of the latest evaluation" in patch["status"]["training"]["warning"]
    assert patch["metadata"] == {"name": "digits", "namespace": "team", "uid": "u-1"}


def test_a_warning_of_many_measures_fits_into_the_object() -> None:
    machine = Machine()
    machine.running()
    assert "warning" not in fields(machine)["training"]
    measures = {f"a_long_name_of_a_measure_{number}": math.nan for number in range(100)}
    machine.state.evaluations = [an_evaluation(**measures)]
    assert len(fields(machine)["training"]["warning"]) == LONGEST_TEXT


def test_patches_are_rare_and_hold_news() -> None:
    sender = patches()
    wanted = {"training": {"samples": 1}, "parameterServer": {}}
    assert sender.due(0.0)
    assert sender.take(wanted, 0.0) is not None
    sender.answered(wanted, is_taken=True)
    assert not sender.due(EVERY_SECONDS - 0.01)
    assert sender.due(EVERY_SECONDS * 1.2)
    assert sender.take(wanted, 12.0) is None, "the API server has it"
    news = {"training": {"samples": 2}, "parameterServer": {}}
    assert sender.take(news, 24.0) is not None


def test_of_a_job_that_trains_for_long_patches_are_rarer() -> None:
    sender, now = patches(), 1000.0
    sent: list[float] = []
    while now < 2000.0:
        if sender.due(now):
            wanted = {"training": {"samples": len(sent)}, "parameterServer": {}}
            assert sender.take(wanted, now) is not None
            sender.answered(wanted, is_taken=True)
            sent.append(now)
        now += 0.5

    pauses = [after - before for before, after in pairwise(sent)]
    early = [pause for pause, at in zip(pauses, sent, strict=False) if at < 1300.0]
    late = [pause for pause, at in zip(pauses, sent, strict=False) if at >= 1300.0]
    assert 10.0 <= min(early) <= max(early) <= 12.5
    assert 30.0 <= min(late) <= max(late) <= 36.5


def test_what_was_not_taken_is_sent_again_with_longer_pauses() -> None:
    sender = patches()
    wanted = {"training": {"samples": 1}, "parameterServer": {}}
    pauses, now = [], 0.0
    for _ in range(8):
        assert sender.take(wanted, now) is not None
        sender.answered(wanted, is_taken=False)
        before = now
        while not sender.due(now):
            now += 0.5
        pauses.append(now - before)
    assert pauses[0] <= EVERY_SECONDS * 1.25
    assert 100 < pauses[-1] <= 145


def test_jobs_do_not_keep_step() -> None:
    pauses = set()
    for seed in range(10):
        sender = Patches(JOB, random.Random(seed))
        sender.take({"training": {}, "parameterServer": {}}, 0.0)
        now = EVERY_SECONDS
        while not sender.due(now):
            now += 0.01
        pauses.add(round(now, 2))
    assert len(pauses) > 5


def test_a_patch_that_would_be_too_large_loses_its_details() -> None:
    many = [{"index": index, "version": 10**9} for index in range(1024)]
    wanted = {
        "training": {"samples": 1, "metrics": {"a": 1.0}},
        "parameterServer": {"ready": 3, "shards": many},
    }
    content = cluster_status.encode(JOB, wanted)
    assert len(content) <= LARGEST_BYTES
    status = json.loads(content)["status"]
    assert status["parameterServer"] == {"ready": 3}
    assert status["training"]["metrics"] == {"a": 1.0}
    names = {f"{'m' * 500}{number}": 1.0 for number in range(50)}
    wanted["training"] = {"samples": 1, "metrics": names}
    assert len(cluster_status.encode(JOB, wanted)) <= LARGEST_BYTES


def test_a_batch_method_has_a_section_of_its_own() -> None:
    machine = BatchMachine()
    _, first, second = machine.running()
    machine.evaluate(first, second)
    coordinator = machine.coordinator

    found = sections.of_object(
        coordinator.state, coordinator.stages, coordinator.watch, machine.now
    )

    assert set(found) == set(COORDINATOR_FIELDS)
    section = found["sandblaster"]
    assert (section["evaluations"], section["groups"], section["iteration"]) == (1, 2, 0)
    assert section["objective"] == found["training"]["loss"] == 7.0
    assert section["gradientNorm"] == 3.0
    assert not {"warning", "warmStartSamples"} & set(section)


def test_a_batch_that_leaves_replicas_without_work_is_told_in_the_object() -> None:
    machine = BatchMachine(rules=RULES.model_copy(update={"push_every_portions": 4}))
    machine.running()

    section = told_of_the_method(machine)

    told = batch_status.batch(machine.state)
    assert told is not None
    assert section["warning"] == told["warning"]
    assert "1 groups of portions for 2 replicas" in section["warning"]


def test_the_samples_of_a_warm_start_are_told_in_the_object() -> None:
    machine = BatchMachine()
    machine.state.warm_start.samples = 40
    before = told_of_the_method(machine)
    assert (before["stage"], before["warmStartSamples"]) == ("warm_start", 40)

    machine.running()
    machine.state.warm_start.samples = 40
    after = told_of_the_method(machine)
    assert (after["stage"], after["warmStartSamples"]) == ("computing", 40)


def told_of_the_method(machine: BatchMachine) -> dict[str, Any]:
    """Its section of the patch that the API server gets."""
    patch = json.loads(cluster_status.encode(JOB, fields(machine)))
    section: dict[str, Any] = patch["status"]["sandblaster"]
    return section
