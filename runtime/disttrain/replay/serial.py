"""The same updates without asynchrony: each gradient is of the very parameters it is applied to."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from disttrain.job import defaults
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
from disttrain.state.placement import place
from disttrain.state.vector import SINGLE
from disttrain.task.loss import LossContext, numbers
from disttrain.task.task import Split
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
        self._present = self._model.watch_gradients()
        self._steps = 0

    def run(self, order: Sequence[tuple[WorkItem, ...]]) -> None:
        """One update per push of the run, in the order in which they were applied."""
        for number, items in enumerate(order, 1):
            self._push(number, items)
            self._fetch(number)

    def _push(self, number: int, items: Sequence[WorkItem]) -> None:
        outgoing = self._model.outgoing[0]
        outgoing.gradient.tensor.zero_()
        self._accrue(items, outgoing.gradient.tensor)
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
            computed_on=self._shard.values.vectors[SINGLE],
            items=tuple(items),
            waiting={0},
        )
        for record in _records(number, len(push.parts(self._shard.share))):
            self._shard.apply(record, under_way)

    def _fetch(self, number: int) -> None:
        """Compute with what the shard gives out now."""
        number_of_parameters = self._shard.share.placement.number(SINGLE)
        for record in _records(number, self._shard.share.num_chunks(SINGLE)):
            record["vector"] = number_of_parameters
            chunk = self._shard.chunk(record)
            if chunk.content:
                given = torch.frombuffer(chunk.content, dtype=torch.float32)
                self._model.parameters[chunk.first : chunk.first + given.numel()].copy_(given)

    def _accrue(self, items: Sequence[WorkItem], total: Tensor) -> None:
        """Add what the items' steps would push together."""
        shares = []
        for item in items:
            found = self._clipped(item)
            if found is not None:
                gradient, share = found
                total.add_(gradient, alpha=share)
                shares.append(share)
        if sum(shares) not in {0.0, len(shares)}:
            total.mul_(len(shares) / sum(shares))

    def _clipped(self, item: WorkItem) -> tuple[Tensor, float] | None:
        """The gradient of one batch with its decay, and its share; None if it is not finite."""
        self._model.collect_gradients_in(self._step.gradient_views)
        gradient = self._step.gradient.tensor.zero_()
        self._present.begin_step()
        seed = self._recording.data.seed
        batch = self._batches[item].batch
        drawn = seeding.batch_seed(seed, item.epoch, item.portion, item.first)
        seeding.seed_step(drawn)
        samples = self._shard.shard.state.samples
        context = LossContext(step=self._steps, epoch=item.epoch, samples=samples, seed=drawn)
        self._steps += 1
        loss = self._recording.task.loss(self.module, self._move(batch), context)
        loss.mean.backward()  # type: ignore[no-untyped-call]
        self._model.gather_gradients([parameter.grad for parameter in self._model.trainable])
        squared_norm, *values = numbers(gradient_check.squared_norm(gradient), *loss.scalars)
        figures = loss.figures(values)
        rule = self._recording.spec.strategy.only_downpour.optimizer.rule
        verdict = gradient_check.check(squared_norm, figures.mean, rule.clip_norm)
        if not verdict.finite:
            return None
        gradient.mul_(verdict.scale)
        if rule.weight_decay > 0:
            self._model.add_decay(gradient, rule.weight_decay)
        return gradient, 1.0 if figures.count is None else figures.count


def _shard(recording: Recording, model: FlatModel) -> ReplayedShard:
    log = ShardLog(index=0, incarnation=_INCARNATION, records=np.zeros(0, RECORD))
    rule = recording.spec.strategy.only_downpour.optimizer.rule
    placement = place(model.tensors.layout, 1, rule.kept)
    shard = ReplayedShard(replace(recording, shards=(log,)), log, placement)
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
