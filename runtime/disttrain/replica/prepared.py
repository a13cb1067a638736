"""What a replica makes before it joins: the task, the model, the data. It may fail, and is slow."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from disttrain.coordinator.protocol.content import Example
from disttrain.coordinator.protocol.messages import Join
from disttrain.groups.steps import Leader
from disttrain.job import defaults, stop
from disttrain.job.spec import DistTrainJob, Spec
from disttrain.launch.config import LaunchConfig
from disttrain.replica import best_model, content, division, evaluation, task_calls, task_model
from disttrain.replica.agreement import ALONE, Act, Agreement, Together
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.division import Division
from disttrain.replica.evaluation import Computing, Sums
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.membership import Trained
from disttrain.replica.model_tensors import ModelTensors, OwnPart
from disttrain.replica.of_several import ModelOfSeveral
from disttrain.replica.partitions import DividedModel
from disttrain.replica.parts import WHOLE, Part
from disttrain.replica.pieces import Sharding
from disttrain.replica.pipeline import Pipeline, PipelineConfig, draws_random_numbers
from disttrain.replica.ranks import LeadingRank, Ranks, SharedBatches
from disttrain.replica.sharded_model import ShardedModel
from disttrain.replica.task_calls import Examples, LossOfBatch, TaskCalls
from disttrain.replica.task_model import Check, TaskModel
from disttrain.replica.watchdog import Watchdog
from disttrain.replica.work import Cutting, Source
from disttrain.task import checks
from disttrain.task.loss import BatchLoss, LossContext
from disttrain.task.task import Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Everything of the task that was checked."""

    task: TaskCalls
    model: nn.Module
    tensors: ModelTensors
    train: Examples
    test: Examples
    device: torch.device
    division: Division | Sharding | None = None
    """How the model is divided among several processes of the replica."""
    of_several: ModelOfSeveral | None = None
    """The model, if it is divided, with which the first process computes."""
    part: OwnPart | None = None
    """What of such a model lies in the vectors of this process."""
    agreement: Agreement = ALONE
    """With the others that have parts."""
    content: tuple[Example, ...] = ()
    """Of the data, where it is compared: see `LaunchConfig.tells_content`."""
    ranks: Ranks | None = None
    """Those that have the whole model each, if the replica has several."""

    @property
    def trained(self) -> Trained:
        """What lies in flat vectors: the model, or this process's part of it."""
        if self.of_several is None:
            return Trained(self.model, self.device)
        return Trained(self.of_several.trained, self.device, self.part, self.agreement)

    def tell(self, act: Act, *words: int) -> None:
        """Let the others that have parts do something. Raises GroupLost."""
        if self.of_several is not None:
            self.of_several.announce(act, *words)

    def with_others(self, leader: Leader, processes: int) -> "Prepared":
        """The same with the processes that this one leads, of so many. Raises ModelError."""
        made: ModelOfSeveral
        if isinstance(self.division, Division):
            division.tell_sample(leader.group, self.division.sample)
            made = DividedModel(self.division, leader, self.tensors.layout)
            part = self.division.own_part(made.part.module, 0)
        elif isinstance(self.division, Sharding):
            made = ShardedModel(self.division, leader, self.tensors.layout)
            part = self.division.own_part(0)
        else:
            return replace(self, ranks=Ranks(leader.group, Part(0, processes), leader))
        return replace(
            self,
            model=made.model,
            tensors=self.tensors.in_model(made.model),
            division=None,
            of_several=made,
            part=part,
            agreement=Together(leader.group),
        )

    @property
    def batch_part(self) -> Part:
        """What the first process reads of each batch."""
        if self.ranks is not None:
            return self.ranks.part
        return WHOLE if self.of_several is None else self.of_several.batch_part

    def shared_batches(self, model: FlatModel) -> SharedBatches | None:
        """How the processes of the replica compute parts of each batch, if they do."""
        if self.ranks is not None:
            return LeadingRank(self.ranks, model)
        return None if self.of_several is None else self.of_several.shared_batches(model)

    def content_of(self, model: nn.Module) -> best_model.Content | None:
        """Gives the values of a divided model; None: the model has them. Calls raise GroupLost."""
        return None if self.of_several is None else partial(self.of_several.tensor, model)

    def introduce(self, join: Join) -> Join:
        """What the coordinator is told of the model and the data."""
        return replace(
            join,
            layout=self.tensors.layout,
            train_samples=self.train.count,
            test_samples=self.test.count,
            sources=self.train.sources,
            content=self.content,
        )

    def loss(self) -> LossOfBatch:
        """The loss of one step, in training."""
        place, of_several = task_calls.mover(self.device), self.of_several

        def alone(batch: Any, context: LossContext) -> BatchLoss:
            return self.task.loss(self.model, place(batch), context)

        return alone if of_several is None else partial(of_several.loss, alone)

    def evaluate(self, model: nn.Module, split: Split, batch_size: int) -> Sums:
        """Measure the model, or another one of the same layers, on a whole split.

        Raises TaskError, and GroupLost.
        """
        examples, place = self.task.examples(split, batch_size=1), task_calls.mover(self.device)
        computing = self._computing(model, split)
        return evaluation.evaluate(self.task, model, examples, batch_size, place, computing)

    def try_one_batch(self, size: int) -> Sums:
        """Measure the first batch. As `evaluate`."""
        place, computing = task_calls.mover(self.device), self._computing(self.model, Split.TEST)
        return evaluation.try_one_batch(self.task, self.model, self.test, size, place, computing)

    def _computing(self, model: nn.Module, split: Split) -> Computing:
        if self.of_several is None:
            return evaluation.alone
        return self.of_several.evaluating(model, split)

    def pipeline(
        self,
        seed: int,
        source: Source,
        cutting: Cutting,
        cancellation: Cancellation,
        *,
        part: Part = WHOLE,
        beside: bool = False,
    ) -> Pipeline:
        """The batches of what the source gives, read as the task wants it; `part`: of each.

        `beside`: never between the steps, so that waiting for work holds up nothing; data that
        draws random numbers is read by a process of its own.
        """
        dataset, collate = self.train.dataset, self.task.collate
        wanted = self.task.input_pipeline()
        draws = beside and wanted.workers == 0 and draws_random_numbers(dataset, collate)
        config = PipelineConfig(
            workers=1 if draws else wanted.workers,
            prefetch=wanted.prefetch,
            pin_memory=self.device.type == "cuda",
            seed=seed,
            part=part,
        )
        return Pipeline(dataset, collate, source, cutting, config, cancellation)


def check_data(job: DistTrainJob, folder: Path) -> None:
    """Load the task of a manifest and look at its data, as `prepare` does. Raises TaskError."""
    _data(task_calls.load(job, folder), job.spec)


def _data(task: TaskCalls, spec: Spec) -> tuple[Examples, Examples]:
    """To train and to test with."""
    # Portions may be larger than the data: then there is one.
    batch = spec.batch_size or 1
    return task.examples(Split.TRAIN, batch), task.examples(Split.TEST, batch)


def prepare(config: LaunchConfig, check: Check) -> Prepared:
    """Load and check the task of a job. Raises a FinalError that says what is wrong with it."""
    spec = config.job.spec
    made = task_model.make(config, check)
    train, test = _data(made.task, spec)
    prepared = Prepared(
        task=made.task,
        model=made.model,
        tensors=made.tensors,
        train=train,
        test=test,
        device=made.device,
    )
    divided = _divided(made)
    if divided is not None:
        prepared = replace(prepared, division=divided, tensors=made.tensors_in(divided))
    else:
        made.model.to(made.device)
        try_out(spec, prepared)
    if config.tells_content:
        splits = {Split.TRAIN: prepared.train, Split.TEST: prepared.test}
        found = (content.sketch(split, of, spec.seed) for split, of in splits.items())
        prepared = replace(prepared, content=tuple(chain.from_iterable(found)))
    return prepared


def _divided(made: TaskModel) -> Division | Sharding | None:
    """How several processes divide a model; None: it is one process's."""
    if made.spec.replicas.partitions > 1:
        return made.in_partitions(division.common_sample_shape(made.task, made.model))
    return made.in_rows() if made.spec.replicas.parts > 1 else None


def try_out(spec: Spec, ready: Prepared) -> None:
    """Measure one batch before the training, so that a mistake shows by then.

    Raises TaskError, and GroupLost.
    """
    size, wanted = defaults.samples_per_step(spec), stop.measures(spec.stop, spec.evaluation)
    with Watchdog(spec.replicas.call_timeout_seconds):
        tried = ready.try_one_batch(size)
    if stop.missing_measure(wanted, tried.measures) is not None:
        # What is measured may depend on the batch.
        whole = ready.evaluate(ready.model, Split.TEST, size)
        checks.require_measures(wanted, whole.measures)
