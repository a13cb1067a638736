import gc
import importlib
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset, default_collate

from builders import launches
from disttrain.coordinator.protocol.fields import Lease
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.pipeline import Loaded, Pipeline, PipelineConfig, draws_random_numbers, read
from disttrain.replica.work import Cutting, WorkSource
from disttrain.task.errors import UserCodeError


class Leases(WorkSource):
    """Gives its leases one by one; `held` of them without waiting."""

    def __init__(self, *leases: Lease, held: int = 0) -> None:
        self._leases = list(leases)
        self._at_once = held
        self.waited = 0
        self.ended = self.dry = False

    def next_now(self) -> Lease | None:
        if self._at_once == 0 or not self._leases:
            return None
        self._at_once -= 1
        return self._leases.pop(0)

    def next_within(self, seconds: float) -> Lease | None:  # noqa: ARG002  It never waits.
        self.waited += 1
        self.ended = not self._leases
        return self._leases.pop(0) if self._leases else None


class Squares(Dataset[Tensor]):
    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index**2)


class Noise(Dataset[Tensor]):
    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(self._draw())


class AtOnce(Dataset[Tensor]):
    def __getitems__(self, indices: list[int]) -> Tensor:
        return torch.tensor(indices)


def a_lease(number: int) -> Lease:
    return Lease(id=number, epoch=0, portion=number, first=0, end=6)


def a_pipeline(
    dataset: Dataset[Any], leases: Leases, config: PipelineConfig | None = None
) -> Pipeline:
    cutting = Cutting(batch_size=4, portion_indices=lambda p, _: np.arange(6) + 10 * p)
    return Pipeline(dataset, collate, leases, cutting, config or PipelineConfig(), Cancellation())


def collate(samples: Any) -> Any:
    return default_collate(samples) if isinstance(samples, list) else samples


def taken(pipeline: Pipeline, count: int) -> list[Loaded]:
    loaded = [pipeline.next(20) for _ in range(count)]
    return [batch for batch in loaded if batch is not None]


@pytest.mark.parametrize("workers", [0, 1])
def test_batches_come_in_the_order_of_the_leases(workers: int) -> None:
    pipeline = a_pipeline(
        Squares(), Leases(a_lease(1), a_lease(2)), PipelineConfig(workers=workers)
    )

    loaded = taken(pipeline, 4)

    assert [batch.item.indices for batch in loaded] == [
        [10, 11, 12, 13],
        [14, 15],
        [20, 21, 22, 23],
        [24, 25],
    ]
    assert loaded[3].batch.tolist() == [576, 625]
    pipeline.drop()


def test_all_batches_of_a_lease_come_before_another_is_waited_for() -> None:
    cancellation = Cancellation()

    class OnlyOne(Leases):
        def next_within(self, seconds: float) -> Lease | None:
            if self.waited:
                cancellation.sleep(60)
            return super().next_within(seconds)

    pipeline = a_pipeline(Squares(), OnlyOne(a_lease(1)), PipelineConfig(workers=1, prefetch=4))

    assert [batch.item.end_offset for batch in taken(pipeline, 2)] == [4, 6]
    cancellation.cancel()
    pipeline.drop()


def test_a_data_set_may_give_a_batch_at_once() -> None:
    pipeline = a_pipeline(AtOnce(), Leases(a_lease(1)))

    assert taken(pipeline, 1)[0].batch.tolist() == [10, 11, 12, 13]


@pytest.mark.parametrize("dataset", [Squares(), Noise(random.random)], ids=["beside", "between"])
def test_no_batch_is_waited_for_longer_than_told(dataset: Dataset[Any]) -> None:
    """Steps that are not pushed yet may be what the next lease waits for."""

    class NoneYet(Leases):
        def next_within(self, seconds: float) -> Lease | None:
            if self.waited:
                time.sleep(seconds)
                return None
            return super().next_within(seconds)

    pipeline = a_pipeline(dataset, NoneYet(a_lease(1)))

    assert len(taken(pipeline, 2)) == 2
    assert pipeline.next(0.01) is None
    pipeline.drop()


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.rand(()).item(), random.random, lambda: float(np.random.random())],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_random_samples_depend_on_their_place_alone(
    draw: Callable[[], float], workers: int
) -> None:
    seen = []
    for disturbance in range(2):
        torch.manual_seed(disturbance)
        random.seed(disturbance)
        np.random.seed(disturbance)
        config = PipelineConfig(workers=workers, seed=5)
        pipeline = a_pipeline(Noise(draw), Leases(a_lease(1), a_lease(2)), config)
        seen.append([batch.batch.tolist() for batch in taken(pipeline, 4)])
        pipeline.drop()

    assert seen[0] == seen[1]
    assert len({str(batch) for batch in seen[0]}) == 4


def test_drawing_random_numbers_is_noticed() -> None:
    assert draws_random_numbers(Noise(random.random), default_collate)
    assert not draws_random_numbers(Squares(), default_collate)


def test_after_a_drop_nothing_comes() -> None:
    pipeline = a_pipeline(Squares(), Leases(*(a_lease(n) for n in range(1, 9))))
    taken(pipeline, 1)

    pipeline.drop()

    assert pipeline.next(0.05) is None


class Broken(Dataset[Tensor]):
    def __init__(self, first: int) -> None:
        self._first = first

    def __getitem__(self, index: int) -> Tensor:
        if index >= self._first:
            message = "no such file"
            raise FileNotFoundError(message)
        return torch.zeros(())


class WorkerPid(Broken):
    """The process that reads, as long as it can."""

    def __getitem__(self, index: int) -> Tensor:
        return super().__getitem__(index) + os.getpid()


def train(pipeline: Pipeline) -> None:
    """Take batches until something is raised."""
    for _ in range(1000):
        pipeline.next(0.02)


def let_it_end(pipeline: Pipeline) -> None:
    taken(pipeline, 3)


def let_it_fail(pipeline: Pipeline) -> None:
    with pytest.raises(UserCodeError):
        train(pipeline)


@pytest.mark.parametrize(
    ("first_broken", "end"), [(99, Pipeline.drop), (99, let_it_end), (14, let_it_fail)]
)
def test_the_workers_end_without_the_garbage_collector(
    first_broken: int, end: Callable[[Pipeline], None]
) -> None:
    # It runs in any thread: the workers would be waited for in the midst of a step.
    gc.disable()
    try:
        leases = Leases(a_lease(1), a_lease(2))
        pipeline = a_pipeline(WorkerPid(first_broken), leases, PipelineConfig(workers=1))
        worker = int(taken(pipeline, 1)[0].batch[0])
        end(pipeline)
        launches.wait_until(lambda: not psutil.pid_exists(worker), "the worker has ended")
    finally:
        gc.enable()


def test_a_worker_has_the_data_set_as_it_is_in_memory_whatever_pythons_default() -> None:
    default = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        cannot_be_pickled = Noise(lambda: 7.0)
        pipeline = a_pipeline(cannot_be_pickled, Leases(a_lease(1)), PipelineConfig(workers=1))
        assert [batch.batch.tolist() for batch in taken(pipeline, 2)] == [[7.0] * 4, [7.0] * 2]
        pipeline.drop()
    finally:
        multiprocessing.set_start_method(default, force=True)


IMPORTED_AT_A_GATE = """
import os, pathlib
here = pathlib.Path(__file__).parent
pathlib.Path(here, str(os.getpid())).touch()
if os.getpid() == {pid}:
    os.close(os.open(here / "gate", os.O_RDONLY))
"""


class Importing(Dataset[Tensor]):
    def __getitem__(self, index: int) -> Tensor:
        importlib.import_module("imported_at_a_gate")
        return torch.tensor(index)


def test_a_worker_waits_for_no_import_that_the_first_step_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyTorch imports in its first step what a worker imports with its first tensor. A worker that
    # was forked in between inherits the module's lock, and no thread that would give it back.
    (tmp_path / "imported_at_a_gate.py").write_text(IMPORTED_AT_A_GATE.format(pid=os.getpid()))
    os.mkfifo(tmp_path / "gate")
    monkeypatch.syspath_prepend(tmp_path)
    begun = threading.Event()

    class Later(Leases):
        def next_within(self, seconds: float) -> Lease | None:
            return super().next_within(seconds) if begun.wait(seconds) else None

    pipeline = a_pipeline(Importing(), Later(a_lease(1)), PipelineConfig(workers=1))
    step = threading.Thread(target=importlib.import_module, args=("imported_at_a_gate",))
    step.start()
    try:
        launches.wait_until((tmp_path / str(os.getpid())).exists, "the import has begun")
        begun.set()
        assert [loaded.batch.tolist() for loaded in taken(pipeline, 2)] == [
            [10, 11, 12, 13],
            [14, 15],
        ]
    finally:
        os.close(os.open(tmp_path / "gate", os.O_WRONLY))
        step.join()
        pipeline.drop()


class BrokenAtOnce(Dataset[Tensor]):
    def __getitems__(self, indices: list[int]) -> Tensor:
        message = f"no such file: {indices}"
        raise FileNotFoundError(message)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_data_set_raises_ends_all_waits_as_the_users_error(workers: int) -> None:
    cancellation = Cancellation()
    cutting = Cutting(batch_size=4, portion_indices=lambda p, _: np.arange(6) + 10 * p)
    config = PipelineConfig(workers=workers)
    Pipeline(Broken(first=12), collate, Leases(a_lease(1)), cutting, config, cancellation)

    with pytest.raises(UserCodeError, match=r"^Broken.__getitem__\(12\) raised") as raised:
        cancellation.sleep(20)
    assert "FileNotFoundError: no such file" in str(raised.value)
    assert "pipeline.py" not in str(raised.value).replace(__file__, "")


def test_what_a_data_set_raises_reaches_the_step_after_the_batches_that_were_ready() -> None:
    pipeline = a_pipeline(Broken(first=14), Leases(a_lease(1)))

    assert len(taken(pipeline, 1)) == 1
    with pytest.raises(UserCodeError, match=r"^Broken.__getitem__\(14\) raised"):
        train(pipeline)


def test_a_batch_that_cannot_be_read_at_once_is_named_by_its_samples() -> None:
    with pytest.raises(UserCodeError, match=r"^BrokenAtOnce.__getitems__\(\[3, 1, 2\]\) raised"):
        read(BrokenAtOnce(), [3, 1, 2])


def test_what_a_data_set_raises_between_the_steps_is_the_users_error() -> None:
    def draw() -> float:
        if len(drawn) > 0:
            message = "no such file"
            raise FileNotFoundError(message)
        drawn.append(random.random())
        return drawn[0]

    drawn: list[float] = []
    pipeline = a_pipeline(Noise(draw), Leases(a_lease(1)))

    with pytest.raises(UserCodeError, match="no such file"):
        pipeline.next(20)


@pytest.mark.parametrize("dataset", [Broken(first=0), BrokenAtOnce()])
def test_the_first_look_at_a_broken_data_set_is_the_users_error(dataset: Dataset[Any]) -> None:
    with pytest.raises(UserCodeError, match="no such file"):
        a_pipeline(dataset, Leases())
