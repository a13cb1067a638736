"""Two learners with local steps, of several ranks with FSDP2 each, beside two of one rank.

In one order of events: a step of the one, then a step of the other, with every push answered. Each
rank has rows of both learners, and a parameter server for them. It writes what that has at the end.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from builders import placements
from builders.local_training import SAMPLES, Batch, LocalTraining, adamw, batches, local_steps
from builders.parameter_servers import OneShard
from disttrain.groups import gloo
from disttrain.groups.gloo import GlooGroup
from disttrain.groups.meeting import FolderMeeting
from disttrain.job.strategies.local_steps import LocalSteps
from disttrain.replica.agreement import Together
from disttrain.replica.pieces import Sharding
from disttrain.replica.sharded_model import ShardedBatches, ShardedRank
from disttrain.task.loss import BatchLoss, LossContext

RANKS: Final = 2
STEPS: Final = 40
OPTIMIZERS: Final[Mapping[str, dict[str, Any]]] = {
    "momentum": {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}},
    "adamw": {**adamw(weight_decay=0.1), "clipNorm": 0.5},
}
CPU: Final = torch.device("cpu")
FEATURES, CLASSES = 6, 7


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(FEATURES, 9),
        nn.Sequential(nn.Tanh(), nn.Linear(9, 5), nn.Tanh()),
        nn.Linear(5, CLASSES),
    )


def loss(of: nn.Module, batch: Batch) -> BatchLoss:
    return BatchLoss(functional.cross_entropy(of(batch[0]), batch[1]))


class ShardedTraining(LocalTraining):
    """One rank of a learner."""

    def __init__(self, group: GlooGroup, server: OneShard, manifest: LocalSteps) -> None:
        self.rank = ShardedRank(Sharding(model(), RANKS, CPU), group)
        pieces = self.rank.pieces.module
        super().__init__(pieces, server, manifest, agreement=Together(group))
        self.stepper.divide_among(ShardedBatches(self.rank, self.flat))

    def loss(self, batch: Batch) -> BatchLoss:
        self.rank.samples = SAMPLES
        first, end = self.rank.part.bounds(SAMPLES)
        own = batch[0][first:end], batch[1][first:end]
        return self.rank.loss(lambda part, _: loss(self.rank.model, part), own, LossContext())


def write(number: int, folder: str) -> None:
    """One process, of `RANKS`: `RANK-CASE.safetensors`, of the rows that it has."""
    torch.set_num_threads(1)
    meeting = FolderMeeting(Path(folder), time.sleep)
    group = gloo.form(meeting, number, RANKS, "127.0.0.1", lambda: None)
    for name in OPTIMIZERS:
        server = OneShard(0.5)
        pair = [ShardedTraining(group, server, _manifest(name)) for _ in range(2)]
        save_file(_train(server, pair), Path(folder) / f"{number}-{name}.safetensors")
    # A process group that is destroyed waits for its members.
    os._exit(0)


def of_one_rank(name: str) -> dict[str, Tensor]:
    """The same of two learners that have the whole model."""
    server = OneShard(0.5)
    return _train(server, [LocalTraining(model(), server, _manifest(name)) for _ in range(2)])


def _manifest(name: str) -> LocalSteps:
    return local_steps(steps=4, optimizer=OPTIMIZERS[name])


def _train(server: OneShard, pair: Sequence[LocalTraining]) -> dict[str, Tensor]:
    of_each = [batches(seed, (FEATURES,), CLASSES) for seed in (5, 6)]
    for _ in range(STEPS):
        for learner, given in zip(pair, of_each, strict=True):
            learner.step(next(given))
            learner.connection.pushes.wait_answered()
    for learner in pair:
        learner.close()
    assert len(server.pushes) == 2 * STEPS // 4
    trained = pair[0].flat.tensors
    values = server.values[placements.PARAMETERS]
    return {
        spec.name: values[spec.first : spec.first + spec.elements].view(spec.shape).clone()
        for spec in trained.specs(pair[0].flat.vector)
    }
