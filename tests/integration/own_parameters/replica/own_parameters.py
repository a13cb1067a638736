"""A replica that keeps its own parameters: gradients go no further than its own model."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from disttrain.job.strategies.own_parameters import (  # type: ignore[import-not-found]  # It is added as programs start.
    OwnParameters,
)
from disttrain.replica.strategies.own_model import (  # type: ignore[import-not-found]  # It is added as programs start.
    OwnModel,
)

from disttrain.coordinator.leases import permutation
from disttrain.coordinator.protocol.commands import Checkpoint, Result
from disttrain.coordinator.protocol.fields import START, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.job import defaults
from disttrain.replica import task_calls
from disttrain.replica.pipeline import Loaded
from disttrain.replica.training import Training, TrainingInputs
from disttrain.replica.work import Cutting, HeldLeases, LostLeases, WorkSource
from disttrain.task.loss import LossContext, numbers

_IDLE_SECONDS = 0.02


class Descent(Training):
    """See `training.Training`."""

    of = OwnParameters

    def __init__(self, given: TrainingInputs) -> None:
        spec, prepared, membership, joined = given
        coordinator, self._seed = membership.coordinator, joined.seed
        self._done = ReplicaReport()
        """Changed as one: others ask for it."""
        self._own = OwnModel(prepared.tensors, membership.config, joined)
        rule = spec.strategy.rule
        assert isinstance(rule, OwnParameters)
        self._descent = torch.optim.SGD(prepared.model.parameters(), lr=rule.learning_rate)
        self._lost = LostLeases(lambda: coordinator.lost_leases)
        self._loss = prepared.loss()
        held = HeldLeases(joined.member, self.progress)
        self._source = WorkSource(coordinator.request, held, membership.cancellation)
        indices = partial(
            permutation.portion_indices, joined.seed, prepared.train.count, joined.portion_size
        )
        cutting = Cutting(batch_size=defaults.samples_per_step(spec), portion_indices=indices)
        self._batches = prepared.pipeline(
            joined.seed, self._source, cutting, membership.cancellation
        )
        self._position = START

    def begin(self, meanwhile: Callable[[], None]) -> None:
        meanwhile()
        self._own.restore()

    def train_until(self, ends: Callable[[], bool]) -> None:
        while not ends():
            loaded = self._batches.next(_IDLE_SECONDS)
            if loaded is not None and not self._lost.skips(loaded.item, self._position):
                self._step(loaded)

    def drain(self) -> None:
        self._source.end()
        self._batches.drop()

    def write_part(self, command: Checkpoint) -> Result:
        written: Result = self._own.write(command)
        return written

    def progress(self) -> Progress:
        done = self._done.progress
        return replace(done, abandoned=self._lost.given_up(done.position))

    def report(self) -> ReplicaReport:
        return replace(self._done, progress=self.progress())

    def _step(self, loaded: Loaded) -> None:
        item, done, began = loaded.item, self._done, time.perf_counter()
        drawn = task_calls.batch_seed(self._seed, item.epoch, item.portion, item.first)
        task_calls.seed_step(drawn)
        samples = done.progress.samples
        context = LossContext(step=done.steps, epoch=item.epoch, samples=samples, seed=drawn)
        self._descent.zero_grad()
        loss = self._loss(loaded.batch, context)
        loss.mean.backward()  # type: ignore[no-untyped-call]
        self._descent.step()
        self._own.updates += 1
        self._position = item.position
        self._done = replace(
            done,
            progress=Progress(position=item.position, samples=samples + len(item.indices)),
            steps=done.steps + 1,
            loss_sum=done.loss_sum + loss.figures(numbers(*loss.scalars)).mean,
            loss_steps=done.loss_steps + 1,
            compute_seconds=done.compute_seconds + time.perf_counter() - began,
        )
