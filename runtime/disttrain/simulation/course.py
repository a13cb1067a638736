"""What a batch method computes, which has the same bits whoever computes it.

Shards and task are production's. A course is computed once, for any number of replicas: what is
known already is said again.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from disttrain.coordinator.journal import batch_rules
from disttrain.coordinator.protocol import commands
from disttrain.job import names
from disttrain.job.strategies.sandblaster import Sandblaster
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.strategies.sandblaster import BatchVectors
from disttrain.replay import final_values
from disttrain.replay.final_values import Measured
from disttrain.replay.replica import Learner
from disttrain.replay.shard import ShardInMemory
from disttrain.sandblaster.batch.driver import Driver
from disttrain.sandblaster.batch.groups import Attempt, Evaluation, Result
from disttrain.sandblaster.batch.programs import Decided, Performed, Program
from disttrain.sandblaster.batch.staging import BatchShard, Chunk
from disttrain.sandblaster.operations import TRIAL
from disttrain.simulation.errors import NotSimulated
from disttrain.simulation.evaluations import Evaluations
from disttrain.simulation.group_gradients import GroupGradients
from disttrain.simulation.setting import Setting, in_memory
from disttrain.state.vector import Vector
from disttrain.transport.header import Role
from disttrain.transport.in_memory import Network
from disttrain.transport.virtual_time import VirtualTime

INCARNATION = 1
"""Of everybody."""


class Course:
    """The first run goes on with it, and those that follow go no further. Of one thread."""

    def __init__(self, setting: Setting) -> None:
        """Raises NotSimulated where batches of that size cannot be made of the data."""
        rule = setting.spec.strategy.rule
        assert isinstance(rule, Sandblaster)  # noqa: S101  `runs` has asked.
        self._setting = setting
        self.portion_samples = rule.portion_size
        backup = rule.backup_tasks
        self.copies_from = backup.start_when_remaining if backup.enabled else 0
        """Groups without a result from which on idle replicas get copies."""
        network = Network(VirtualTime())
        shards = range(setting.spec.shards)
        self.shards = [_shard(setting, index, network) for index in shards]
        initial = Learner(setting, outgoing_buffers=0).model.values_to_upload()
        for shard in self.shards:
            shard.begin_with(initial)
        self.gradients = GroupGradients(setting, self.values())
        self.driver = _driver(rule, self.gradients.count, setting.seed)
        self._performed: dict[int, list[Performed]] = {}
        """By number of the command; one of each shard."""
        self._results: dict[tuple[int, int], Result] = {}
        """By evaluation and group."""
        self._measured: dict[int, Measured] = {}
        """By samples."""

    @property
    def bytes_of_shards(self) -> Sequence[int]:
        return [_batch(shard).staging.layout.bytes for shard in self.shards]

    def values(self) -> dict[Vector, Tensor]:
        """The model's, as the shards have them now."""
        return final_values.whole_values(self.shards, self._setting.spec.strategy.rule.evaluates)

    def measured(self, samples: int, evaluations: Evaluations) -> Measured:
        """The point accepted last, after so many samples."""
        if samples not in self._measured:
            self._measured[samples] = evaluations.measure(self.values())
        return self._measured[samples]

    def carry_out(self, command: Program) -> Sequence[Performed]:
        """What each shard answers."""
        if command.number not in self._performed:
            self._performed[command.number] = [_perform(shard, command) for shard in self.shards]
            if command.evaluation:
                trial = self.gradients.model.vector.beside(TRIAL)
                parts = [shard.values.tensor(trial) for shard in self.shards]
                self.gradients.move_to(torch.cat(parts))
        return self._performed[command.number]

    def result(self, attempt: Attempt, evaluation: Evaluation) -> Result:
        """Of a group of the evaluation under way: its gradient is staged on all shards.

        Raises TaskError, LossError.
        """
        name = evaluation.number, attempt.group
        if name not in self._results:
            found, gradient = self.gradients.of(attempt.group)
            for shard in self.shards:
                _stage(shard, attempt, evaluation.number, gradient)
            self._results[name] = Result(
                attempt=attempt.number,
                evaluation=evaluation.number,
                loss_sum=found.loss,
                samples=found.samples,
                count=found.count,
                shards=evaluation.shards,
            )
        return replace(self._results[name], attempt=attempt.number)

    def decide(self, news: Decided) -> None:
        """Which results count; of an evaluation that is over it changes nothing."""
        for shard in self.shards:
            shard.shard.stage.carry_out(commands.Decide(news=news))


def _perform(shard: ShardInMemory, command: Program) -> Performed:
    result = shard.shard.stage.carry_out(commands.Perform(order=command))
    assert isinstance(result, commands.Performed), result  # noqa: S101  Nobody was lost.
    return result.performed


def _stage(shard: ShardInMemory, attempt: Attempt, evaluation: int, gradient: Tensor) -> None:
    held = shard.values.share.range_of(shard.values.trained)
    own, staging = gradient[held.first : held.end].numpy(), _batch(shard).staging
    for number in range(staging.layout.chunks):
        chunk = Chunk(
            sender=attempt.worker,
            evaluation=evaluation,
            group=attempt.group,
            attempt=attempt.number,
            number=number,
        )
        staging.stage(chunk, own[staging.layout.place(number)])


def _shard(setting: Setting, index: int, network: Network) -> ShardInMemory:
    """Of the network it has a name only: commands and gradients come in calls."""
    return ShardInMemory(
        setting.spec,
        ShardState(index=index, incarnation=INCARNATION),
        setting.placement,
        in_memory(network, Role.SHARD).listen(names.shard_name(index)),
        chunk_bytes=network.chunk_bytes,
    )


def _batch(shard: ShardInMemory) -> BatchShard:
    stage = shard.shard.stage
    assert isinstance(stage, BatchVectors)  # noqa: S101  The strategy's side of a shard.
    return stage.batch


def _driver(rule: Sandblaster, groups: int, seed: int) -> Driver:
    try:
        return batch_rules.driver(rule, groups, seed)
    except ValueError as error:
        message = f"spec.strategy.sandblaster.batchSize: {error}"
        raise NotSimulated(message) from error
