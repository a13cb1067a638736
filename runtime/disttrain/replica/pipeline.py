"""The data pipeline: read, process, train. The first two run beside the training step.

PyTorch's DataLoader reads and processes: in worker processes (`workers` of the task's
`input_pipeline`), or in a thread of this process when there are none. Workers are forked by the
thread that makes the pipeline, before it trains: a lock that another thread holds over a fork, as
that of a module which PyTorch imports in its first step, is held in the child for ever.
"""

import queue
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from disttrain.coordinator.protocol.fields import Lease
from disttrain.replica import task_calls
from disttrain.replica.cancellation import Cancellation, Cancelled
from disttrain.replica.parts import WHOLE, Part
from disttrain.replica.work import Cutting, Source, WorkItem
from disttrain.task import user_code
from disttrain.task.errors import TaskError

Collate = Callable[[list[Any]], Any]

_LOOK_AGAIN_SECONDS = 0.1
_MOST_SHOWN = 256
"""Samples named when a batch that is read at once cannot be read."""


class Loaded(NamedTuple):
    """A batch that is ready for training."""

    item: WorkItem
    batch: Any
    """None: of this part of it there are no samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineConfig:
    """How batches are prepared."""

    workers: int = 0
    """Processes that read and process; 0: a thread of this process."""
    prefetch: int = 2
    """Batches that lie ready, per worker."""
    pin_memory: bool = False
    """Put batches into page-locked memory, for a GPU."""
    seed: int = 0
    part: Part = WHOLE
    """What is read of each batch."""


class Batches(Dataset[Loaded]):
    """A data set whose "sample" is a whole batch, named by a work item."""

    def __init__(
        self, dataset: Dataset[Any], collate: Collate, config: PipelineConfig, *, seeded: bool
    ) -> None:
        self._dataset = dataset
        self._collate = collate
        self._config = config
        self._seeded = seeded

    def __getitem__(self, item: WorkItem) -> Loaded:
        """Read and process one batch; what the user's code raised takes the batch's place."""
        first, end = self._config.part.bounds(len(item.indices))
        if first == end:
            return Loaded(item, None)
        if self._seeded:
            seed, place = self._config.seed, item.first + first
            task_calls.seed_everything(task_calls.batch_seed(seed, item.epoch, item.portion, place))
        try:
            return Loaded(item, self._collate(read(self._dataset, item.indices[first:end])))
        except TaskError as error:
            # Raised in a worker it would arrive with the traceback of everything around it.
            return Loaded(item, error)


class Pipeline:
    """Makes batches of the leases that the work source gives, ahead of the training step.

    A data set that draws random numbers and has no workers is read between the steps instead: the
    generators are the process's, and a thread would make the numbers depend on timing. Then `next`
    reads; it waits no longer for a lease than it is told, since a lease may wait for a step.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        collate: Collate,
        source: Source,
        cutting: Cutting,
        config: PipelineConfig,
        cancellation: Cancellation,
    ) -> None:
        self._cancellation = cancellation
        self._source = source
        self._dropped = threading.Event()
        inline = config.workers == 0 and draws_random_numbers(dataset, collate)
        seeded = inline or config.workers > 0
        items = _Items(source, cutting, self._dropped)
        batches = Batches(dataset, collate, config, seeded=seeded)
        reading = _Reading(_loader(batches, items, config), items)
        self._ready: queue.Queue[Loaded] = queue.Queue(maxsize=max(1, config.prefetch))
        self._inline = reading if inline else None
        if not inline:
            # Nothing but the thread has it: the loader's workers end when the thread does.
            fill = threading.Thread(
                target=self._fill, args=(reading,), name="pipeline", daemon=True
            )
            fill.start()

    @property
    def dry(self) -> bool:
        """Everything received was given out, and the coordinator had no more."""
        return self._source.dry

    def next(self, timeout: float) -> Loaded | None:
        """The next batch, or None after `timeout` seconds without one. Compute thread only.

        Raises TaskError when the data set did, after the batches that were ready.
        """
        if self._dropped.is_set():
            return None
        if self._inline is not None:
            return _sound(self._inline.next(timeout))
        try:
            return self._ready.get(timeout=timeout)
        except queue.Empty:
            # What ended the thread that makes the batches would not be seen otherwise.
            self._cancellation.check()
            return None

    def drop(self) -> None:
        self._dropped.set()

    def _fill(self, reading: "_Reading") -> None:
        try:
            while not reading.is_over:
                loaded = reading.next(_LOOK_AGAIN_SECONDS)
                if loaded is not None and isinstance(loaded.batch, TaskError):
                    # Not raised: its traceback would keep the loader, and with it the workers.
                    self._cancellation.cancel(loaded.batch)
                    return
                if loaded is not None:
                    self._put(loaded)
        except Cancelled:
            return
        except BaseException as error:
            self._cancellation.cancel(error)

    def _put(self, loaded: Loaded) -> None:
        while not self._dropped.is_set():
            try:
                return self._ready.put(loaded, timeout=_LOOK_AGAIN_SECONDS)
            except queue.Full:
                self._cancellation.check()
        return None


class _Items:
    """What the loader reads: the batches of all leases held. Ends rather than waits.

    If it waited for a lease, the loader would keep back batches that the coordinator wants to see
    done before it gives one. It knows nothing of the loader: in a cycle of the two the loader's
    workers would end when the garbage collector finds them, in the midst of a step.
    """

    def __init__(self, source: Source, cutting: Cutting, dropped: threading.Event) -> None:
        self._source = source
        self._cutting = cutting
        self._dropped = dropped
        self._lease: Lease | None = None

    def await_lease(self, seconds: float) -> bool:
        """Whether there is a lease to begin with, in that time. Raises Cancelled."""
        if self._dropped.is_set():
            return False
        self._lease = self._source.next_within(seconds)
        return self._lease is not None

    @property
    def are_over(self) -> bool:
        """There will be no lease any more, once none was there."""
        return self._dropped.is_set() or self._source.ended

    def __iter__(self) -> Iterator[WorkItem]:
        while self._lease is not None:
            for item in self._cutting.items(self._lease):
                if self._dropped.is_set():
                    return
                yield item
            self._lease = self._source.next_now()


class _Reading:
    """The batches of one lease after the other."""

    def __init__(self, loader: DataLoader[Loaded], items: _Items) -> None:
        self._loader = loader
        self._items = items
        # There is no lease yet, and so no batch: this only forks the workers.
        self._batches: Iterator[Loaded] | None = iter(loader)
        self.is_over = False
        """There will be none any more."""

    def next(self, timeout: float) -> Loaded | None:
        """The next batch; None when no lease came for one in that time. Raises Cancelled."""
        while self._batches is not None or self._items.await_lease(timeout):
            # In a worker the task's code cannot be seen from here: what takes long is the waiting.
            with user_code.noted("reading a batch"):
                if self._batches is None:
                    self._batches = iter(self._loader)
                loaded: Loaded | None = next(self._batches, None)
            if loaded is not None:
                return loaded
            self._batches = None
        self.is_over = self._items.are_over
        return None


def _sound(loaded: Loaded | None) -> Loaded | None:
    if loaded is not None and isinstance(loaded.batch, TaskError):
        raise loaded.batch
    return loaded


def read(dataset: Dataset[Any], indices: list[int]) -> list[Any]:
    """The samples of a batch; at once where the data set can do that. Raises TaskError."""
    name = type(dataset).__name__
    at_once = getattr(dataset, "__getitems__", None)
    if at_once is not None:
        with user_code.running(lambda: f"{name}.__getitems__({_shown(indices)})"):
            return at_once(indices)  # type: ignore[no-any-return]
    samples: list[Any] = []
    with user_code.running(lambda: f"{name}.__getitem__({_next(indices, samples)})"):
        samples.extend(dataset[index] for index in indices)
    return samples


def _next(indices: list[int], samples: list[Any]) -> int:
    """The sample being read; the last one also once it is here, for whoever asks from elsewhere."""
    return indices[min(len(samples), len(indices) - 1)]


def draws_random_numbers(dataset: Dataset[Any], collate: Collate) -> bool:
    """Whether preparing a batch advances a generator of this process. Prepares one to see.

    Raises TaskError.
    """
    before = _generator_states()
    collate(read(dataset, [0]))
    return before != _generator_states()


def _generator_states() -> tuple[object, ...]:
    numpy_state = np.random.get_state(legacy=True)
    torch_state = torch.default_generator.get_state().numpy().tobytes()
    return torch_state, str(numpy_state), random.getstate()


def _loader(batches: Batches, items: _Items, config: PipelineConfig) -> DataLoader[Loaded]:
    several = config.workers > 0
    return DataLoader(
        batches,
        batch_size=None,
        sampler=items,
        num_workers=config.workers,
        collate_fn=_as_it_is,
        pin_memory=config.pin_memory,
        prefetch_factor=max(1, config.prefetch) if several else None,
        # Whatever the interpreter's default: a forked worker has the data set, unpickled, and
        # PyTorch imported.
        multiprocessing_context="fork" if several else None,
        persistent_workers=several,
        # By default a loader draws from the process's generator whenever it begins, beside the
        # step, and what a model draws for dropout would depend on timing.
        generator=torch.Generator(),
    )


def _shown(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:_MOST_SHOWN]))
    more = f", ... of {len(indices)}" if len(indices) > _MOST_SHOWN else ""
    return f"[{shown}{more}]"


def _as_it_is(loaded: Sequence[Any]) -> Sequence[Any]:
    return loaded
