"""Jobs whose replicas are partitions train what one process for each would."""

import functools
import json
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from builders import scraping
from builders.at_night import others_at_night
from builders.divided_jobs import LOCAL_STEPS, MANIFEST
from builders.runs import RunningJob, set_field
from disttrain.job.strategy_kind import Precision
from disttrain.parallel import Grid
from disttrain.parallel.counting import counted
from disttrain.replica import division
from disttrain.state import placement
from tasks.divided_images import DividedImages

DOWNPOUR = ()
ROWS = (*LOCAL_STEPS, "spec.evaluation={everyEpochs: 1, keepBest: {}}")
IN_A_ROW = "wholeOn: {filters: 0, pool: 1, hidden: 1, head: 2}"
MOMENTUM = ("spec.strategy.downpour.optimizer={momentum: {learningRate: 0.05, momentum: 0.9}}",)
PREDICTED = (*MOMENTUM, "spec.strategy.downpour.staleness={predict: {}}")
NESTEROV = (
    "spec.strategy={localSteps: {steps: 4, adopt: replace, outer: {nesterov: {}}, "
    "optimizer: {name: AdamW, arguments: {lr: 0.01}}}}",
    "spec.task.arguments={normalised: false}",
)
FRAGMENTS = (
    "spec.strategy={localSteps: {steps: 4, fragments: 2, quorum: 1, "
    "optimizer: {name: AdamW, arguments: {lr: 0.01}, schedule: {cosine: {}}}}}",
    "spec.task.arguments={normalised: false}",
)
"""Partitions cut fragments of their own, so that with Nesterov's momentum these are others. They
know when the run ends, by the number of samples that the first one alone has counted."""
SEVERAL_STEPS = ("spec.strategy={localSteps: {steps: 2}}",)
BFLOAT16 = ("spec.strategy.downpour.precision=bfloat16",)
IN_THE_FIRST = "partitions: 2, partitioning: {hidden: whole, head: whole}"
"""The other partition trains nothing: a convolution's filters are the first one's."""
LOCAL_FILTERS = ("spec.task.entrypoint=divided_images:LocalFilters",)
OWN_GRIDS = "grid: 4x1, partitioning: {filters: 2x2, local: 1x2, pool: 1x1}"
"""Of the filters of places the last two partitions have nothing."""
COUNTED = ("spec.task.entrypoint=divided_images:Counted",)
SANDBLASTER = (
    "spec.strategy={sandblaster: {precision: float64, portionSize: 24, optimizer: {lbfgs: {}}}}",
    "spec.batchSize=null",
    "spec.portionSize=null",
    "spec.task.arguments={normalised: false}",
    "spec.stop={iterations: 6}",
)
WARM = (
    "spec.strategy={sandblaster: {portionSize: 24, optimizer: {lbfgs: {}}, warmStart: "
    "{samples: 96, batchSize: 8, sgd: {learningRate: 0.1}}}}",
    "spec.batchSize=null",
    "spec.portionSize=null",
    "spec.task.arguments={normalised: false}",
    "spec.stop={iterations: 4}",
)


def trained(folder: Path, *assignments: str) -> dict[str, Tensor]:
    folder.mkdir()
    with RunningJob(folder, assignments, MANIFEST) as job:
        assert job.wait() == 0, job.printed()
        job.assert_promises_held()
        return load_file(job.output / "model.safetensors")


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Tensor]]:
    """What a job whose replica is one process trains, by its assignments."""

    @functools.cache
    def of(*assignments: str) -> dict[str, Tensor]:
        return trained(tmp_path_factory.mktemp("one") / "job", *assignments)

    return of


def distance(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    assert found.keys() == wanted.keys()
    here, there = (
        torch.cat([each[name].double().flatten() for name in sorted(wanted)])
        for each in (found, wanted)
    )
    return float((here - there).norm() / there.norm())


@pytest.mark.parametrize(
    ("strategy", "replicas", "bound"),
    [
        (DOWNPOUR, "partitions: 2", 1e-4),
        (DOWNPOUR, "partitions: 3, grid: 3x1, partitioning: {hidden: whole}", 1e-4),
        (LOCAL_FILTERS, f"partitions: 4, {OWN_GRIDS}", 1e-4),
        (DOWNPOUR, "partitions: 2, wholeOn: {filters: 1, pool: 0, hidden: 0, head: 1}", 1e-4),
        (DOWNPOUR, IN_THE_FIRST, 1e-4),
        (LOCAL_STEPS, f"partitions: 3, {IN_A_ROW}, microBatches: 4", 1e-3),
        (COUNTED, "partitions: 4", 1e-4),
        (BFLOAT16, "partitions: 2", 2e-2),
        (MOMENTUM, "partitions: 2, grid: 2x1", 1e-4),
        (PREDICTED, "partitions: 2", 1e-4),
        (NESTEROV, "partitions: 2", 1e-3),
        (FRAGMENTS, "partitions: 2", 1e-3),
        (LOCAL_STEPS, "grid: 2x1", 1e-3),
        (ROWS, "ranks: 3, inner: fsdp2", 1e-3),
        (SANDBLASTER, "partitions: 2", 1e-8),
        (SANDBLASTER, IN_THE_FIRST, 1e-8),
        (WARM, "partitions: 2", 1e-3),
    ],
    ids=[
        "downpour",
        "whole",
        "own-grids",
        "cut",
        "all-in-the-first",
        "cut-local-steps",
        "counted",
        "bfloat16",
        "momentum",
        "predicted",
        "nesterov",
        "fragments",
        "local-steps",
        "fsdp2",
        "sandblaster",
        "sandblaster-all-in-the-first",
        "warm-start",
    ],
)
def test_the_model_is_that_of_one_process(
    tmp_path: Path,
    one_process: Callable[..., dict[str, Tensor]],
    strategy: tuple[str, ...],
    replicas: str,
    bound: float,
) -> None:
    one = one_process(*strategy)
    divided = f"spec.replicas={{count: 1, device: cpu, threads: 1, {replicas}}}"
    several = trained(tmp_path / "several", *strategy, divided)
    assert distance(several, one) <= bound


@pytest.mark.parametrize(
    ("strategy", "divided", "others"),
    [
        (DOWNPOUR, {"partitions": 4}, ({"partitions": 1}, {"partitions": 2})),
        (LOCAL_STEPS, {"ranks": 4, "inner": "fsdp2"}, ({"ranks": 1}, {"partitions": 2})),
    ],
    ids=["partitions", "fsdp2"],
)
def test_a_job_goes_on_divided_otherwise(
    tmp_path: Path,
    strategy: tuple[str, ...],
    divided: dict[str, object],
    others: tuple[dict[str, object], ...],
) -> None:
    arguments = {"normalised": strategy == DOWNPOUR}
    replicas = {"count": 1, "device": "cpu", "threads": 1}
    slow = (
        *strategy,
        f"spec.task.arguments={json.dumps({**arguments, 'step_seconds': 0.3})}",
        f"spec.replicas={json.dumps(replicas | divided)}",
    )
    (tmp_path / "divided").mkdir()
    with RunningJob(tmp_path / "divided", slow, MANIFEST) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= 16)
        job.interrupt()
        job.wait()
        assert job.summary()["phase"] == "Stopped"
    found = []
    for number, other in enumerate(others):
        output = tmp_path / str(number) / "output"
        shutil.copytree(job.output.parent, output.parent)
        set_field(output, "replicas", replicas | other)
        set_field(output, "task.arguments", arguments)
        with RunningJob.resumed(output) as job_that_goes_on:
            assert job_that_goes_on.wait() == 0, job_that_goes_on.printed()
            job_that_goes_on.assert_promises_held()
            assert job_that_goes_on.summary()["samples"] == 2 * 96
            found.append(load_file(output / "model.safetensors"))
    assert distance(*found) <= 1e-4


def test_each_partition_is_connected_with_the_shards_of_its_part_alone(tmp_path: Path) -> None:
    partitions, shards, sample = 3, 5, (2, 10, 9)
    assignments = (
        "spec.task.arguments={step_seconds: 0.1}",
        "spec.stop.epochs=1000",
        "spec.transport=tcp",
        f"spec.parameterServer.shards={shards}",
        f"spec.replicas={{count: 2, partitions: {partitions}, device: cpu, threads: 1}}",
    )
    model = DividedImages().model()
    parts = counted(model, Grid(1, partitions), sample, 8).parts
    planned = placement.place(division.layout_of(parts, model, Precision.FLOAT32, {}), shards)
    wanted = [planned.holders_of(rank) for rank in range(partitions)]
    assert all(0 < len(each) < shards for each in wanted)
    with RunningJob(tmp_path, assignments, MANIFEST) as job:
        status = job.wait_until(trained_by_both)
        found = {each["name"]: each for each in status["members"]}
        ports = [
            int(found[f"shard-{each}"]["address"].rpartition(":")[2]) for each in range(shards)
        ]
        for replica in range(2):
            for rank in range(partitions):
                connections = shards_of(found[f"replica-{replica}-{rank}"]["pid"], ports)
                # One to push, one to fetch.
                assert connections == sorted(2 * wanted[rank])
        job.interrupt()
        job.wait()
        job.assert_promises_held()


def trained_by_both(status: dict[str, Any]) -> bool:
    leaders = {"replica-0-0", "replica-1-0"}
    return all(
        each.get("steps", 0) > 1 for each in status.get("members", []) if each["name"] in leaders
    ) and leaders <= {each["name"] for each in status.get("members", [])}


def shards_of(pid: int, ports: list[int]) -> list[int]:
    """One number of a shard for each connection that a process has to it."""
    there = [each.raddr.port for each in psutil.Process(pid).net_connections("tcp") if each.raddr]
    return sorted(ports.index(each) for each in there if each in ports)


def has_all(metric: str, pages: list[str], _: object) -> bool:
    return all(total(each, metric) > 0 for each in pages)


def test_each_partition_serves_what_it_sends_and_how_long_it_waits(tmp_path: Path) -> None:
    slow = ("spec.task.arguments={step_seconds: 0.1}", "spec.replicas.partitions=2")
    with RunningJob(tmp_path, (*slow, "spec.stop.epochs=1000"), MANIFEST) as job:
        status = job.wait_until(lambda status: status.get("samples", 0) >= 16)
        pages = scraping.addresses(status)
        partitions = [pages[name] for name in ("replica-0-0", "replica-0-1")]
        # Brought up to date with each sign of life.
        for metric in ("partition_waiting_seconds", "push_bytes", "fetch_bytes"):
            job.wait_until(partial(has_all, metric, partitions), timeout=90.0)
        job.interrupt()
        job.wait()
        job.assert_promises_held()


def total(address: str, metric: str) -> float:
    return scraping.total(scraping.scraped(address), f"disttrain_{metric}_total")


@pytest.mark.parametrize("strategy", others_at_night(DOWNPOUR, SEVERAL_STEPS))
def test_a_partition_killed_in_its_layer_restarts_its_replica_alone(
    tmp_path: Path, strategy: tuple[str, ...]
) -> None:
    assignments = (
        *strategy,
        "spec.task.entrypoint=divided_images:Cut",
        f"spec.task.arguments={{folder: {tmp_path}, layer_seconds: 0.2}}",
        "spec.stop.epochs=1000",
        "spec.replicas={count: 2, partitions: 2, device: cpu, threads: 1, "
        "wholeOn: {filters: 0, hidden: 1, lasting: 1}, microBatches: 2}",
        "spec.failurePolicy={restartBackoff: {initialSeconds: 0.1, maxSeconds: 1}}",
    )
    members, others = ("replica-0-0", "replica-0-1"), ("replica-1-0", "replica-1-1")

    def steps(status: dict[str, Any]) -> int:
        """Of the other replica."""
        done = {each["name"]: each.get("steps", 0) for each in status["members"]}
        return int(done.get(others[0], 0))

    with RunningJob(tmp_path, assignments, MANIFEST) as job:
        job.wait_until(lambda status: status.get("samples", 0) >= 16 and steps(status) > 0)
        before, rest = ([job.pid(name) for name in names] for names in (members, others))
        leader, follower = ((tmp_path / f"{pid}.forgotten").exists() for pid in before)
        asked = [
            [(tmp_path / f"{pid}.{split}").exists() for split in ("train", "test")]
            for pid in [*before, *rest]
        ]
        # Who makes a model from now on waits, so that the group does not come back too soon.
        (tmp_path / "struck").touch()
        # Nearly all of a step's time passes in the layer of the second partition.
        job.signal("replica-0-1", signal.SIGKILL)
        struck = job.wait_until(lambda status: status["liveReplicas"] == 1)
        went_on = job.wait_until(lambda status: steps(status) >= steps(struck) + 5)
        assert went_on["samples"] > struck["samples"]
        assert " trains incarnation=2" not in job.log(members[0])
        (tmp_path / "back").touch()
        job.wait_until(lambda _: " trains incarnation=2" in job.log(members[0]))
        assert [job.pid(name) for name in others] == rest
        job.interrupt()
        job.wait()
        assert job.summary()["restarts"] == {"coordinator": 0, "shard": 0, "replica": 1}
        job.assert_promises_held()
    assert follower
    assert not leader
    # The first process of each replica alone has the data.
    assert asked == 2 * [[True, True], [False, False]]
