"""The same updates without asynchrony: each gradient is of the very parameters it is applied to."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from disttrain.job import defaults
from disttrain.parameter_server import parts
from disttrain.parameter_server.client import Push, Version
from disttrain.parameter_server.deliveries import SenderLife
from disttrain.parameter_server.ledger import RECORD, Kind
from disttrain.replay.exchange import PushUnderWay
from disttrain.replay.recording import Recording, ShardLog
from disttrain.replay.shard import ReplayedShard
from disttrain.replica import device, gradient_check, seeding
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pipeline import Batches, PipelineConfig
from disttrain.replica.work import WorkItem
from disttrain.task.task import Split
from disttrain.transport.header import Vector
from disttrain.transport.memory import OrdinaryMemory

_LIFE = SenderLife(0, 1)
_INCARNATION = 1


class SerialTraining:
    """One replica and one shard that wait for each other."""

    def __init__(self, recording: Recording) -> None:
        task, spec = recording.task, recording.spec
        place = device.resolve(recording.device)
        self.module: nn.Module = task.model(spec.seed)
        self._model = FlatModel(self.module, OrdinaryMemory(), place, outgoing_buffers=2)
        self._move = device.mover(place)
        self._recording = recording
        self._shard = _shard(recording, self._model)
        examples = task.examples(Split.TRAIN, defaults.samples_per_step(spec))
        config = PipelineConfig(seed=recording.data.seed)
        self._batches = Batches(examples.dataset, task.collate, config, seeded=True)
        self._step = self._model.outgoing[1]

    def run(self, order: Sequence[tuple[WorkItem, ...]]) -> None:
        """One update per push of the run, in the order in which they were applied."""
        for number, items in enumerate(order, 1):
            self._push(number, items)
            self._model.parameters.copy_(self._shard.values.vectors[Vector.PARAMETERS])

    def _push(self, number: int, items: Sequence[WorkItem]) -> None:
        outgoing = self._model.outgoing[0]
        outgoing.gradient.tensor.zero_()
        for item in items:
            outgoing.gradient.tensor.add_(*self._clipped(item))
        outgoing.leave()
        outgoing.wait_left()
        push = Push(
            sequence=number,
            gradient=outgoing.gradient.buffer,
            versions=(Version(_INCARNATION, number - 1),),
            samples=sum(len(item.indices) for item in items),
            buffers={v: flat.buffer for v, flat in outgoing.buffers.vectors.items()},
        )
        under_way = PushUnderWay(
            push=push,
            outgoing=outgoing,
            computed_on=self._shard.values.vectors[Vector.PARAMETERS],
            items=tuple(items),
            waiting={0},
        )
        for record in _records(number, len(parts.push_chunks(self._shard.welcome, push.runs()))):
            self._shard.apply(record, under_way)

    def _clipped(self, item: WorkItem) -> tuple[Tensor]:
        """The gradient of one batch; zero if it is not finite."""
        self._model.collect_gradients_in(self._step.gradient_views)
        gradient = self._step.gradient.tensor.zero_()
        seed = self._recording.data.seed
        batch = self._batches[item].batch
        seeding.seed_step(seeding.batch_seed(seed, item.epoch, item.portion, item.first))
        loss = self._recording.task.loss(self.module, self._move(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        squared_norm, value = device.numbers(torch.dot(gradient, gradient), loss)
        clip_norm = self._recording.spec.strategy.only_downpour.optimizer.rule.clip_norm
        verdict = gradient_check.check(squared_norm, value, clip_norm)
        if not verdict.finite:
            return (gradient.zero_(),)
        return (gradient.mul_(verdict.scale),)


def _shard(recording: Recording, model: FlatModel) -> ReplayedShard:
    log = ShardLog(index=0, incarnation=_INCARNATION, records=np.zeros(0, RECORD))
    shard = ReplayedShard(replace(recording, shards=(log,)), log, model.tensors.layout)
    shard.begin_with(model.values_to_upload())
    shard.shard.admit(_LIFE)
    return shard


def _records(number: int, chunks: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """What the log of such a push would be."""
    records = np.zeros(chunks, RECORD)
    records["kind"] = Kind.CHUNK_APPLIED
    records["sender"], records["incarnation"] = _LIFE
    records["sequence"], records["chunks"] = number, chunks
    records["chunk"] = np.arange(chunks)
    records["live_replicas"] = 1
    return records
