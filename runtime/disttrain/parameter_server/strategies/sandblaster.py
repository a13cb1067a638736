"""A shard of Sandblaster: gradients of groups are staged, commands change the vectors."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from disttrain.checkpoint.element_types import DTYPES
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.commands import CommandFailed, WhyFailed
from disttrain.holder.values import Values, bytes_of
from disttrain.job.spec import Spec
from disttrain.job.strategies.sandblaster import (
    ConjugateGradient,
    GradientDescent,
    Lbfgs,
    Sandblaster,
)
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import (
    Answer,
    Answers,
    BatchFigures,
    HolderSide,
    Refused,
    ShardState,
)
from disttrain.parameter_server.records import Records
from disttrain.sandblaster.batch.groups import Worker
from disttrain.sandblaster.batch.programs import Decided, Program, ProgramLog
from disttrain.sandblaster.batch.staging import BatchShard, Chunk, Layout
from disttrain.sandblaster.errors import (
    NotStaged,
    ProgramRefused,
    StagingFull,
    UnknownVector,
    WrongChunk,
    WrongEvaluation,
)
from disttrain.sandblaster.operations import FETCHABLE, PARAMETERS, TRIAL, is_of_pair
from disttrain.sandblaster.vectors import Vectors
from disttrain.state.share import Part, Share
from disttrain.state.vector import Vector
from disttrain.telemetry import logs
from disttrain.transport.header import Header, Reason, Verb

_PLACES = "places"


class BatchValues(Values):
    """Frozen parameters and buffers lie in tensors of their own, as in every shard."""

    def __init__(self, share: Share, names: Sequence[str] = (PARAMETERS,)) -> None:
        """`names` of vectors, in the order of their places: sums of neighbours have other bits."""
        super().__init__(share)
        del self._tensors[self.trained], self._bytes[self.trained]
        kind = DTYPES[self.trained.element_type]
        self.batch = Vectors(share.ranges[self.trained].count, kind)
        for name in names:
            self.batch.make(name)

    @property
    def vectors(self) -> Mapping[Vector, Tensor]:
        beside = {
            self.trained.beside(name): self._row(name)
            for name in self.batch.places
            if name != PARAMETERS
        }
        return {self.trained: self._row(PARAMETERS), **self._tensors, **beside}

    @property
    def immutable(self) -> Mapping[Vector, int]:
        found = self.batch
        history = filter(is_of_pair, found.places)
        return {self.trained.beside(name): found.content(name) for name in history}

    @property
    def description(self) -> Mapping[str, str]:
        return {_PLACES: " ".join(self.batch.places)}

    def has(self, vector: Vector) -> bool:
        is_row = vector == self.trained.beside(vector.name) and vector.name in self.batch.names
        return is_row or super().has(vector)

    def tensor(self, vector: Vector) -> Tensor:
        return self._tensors[vector] if vector in self._tensors else self._row(vector.name)

    def all_bytes(self, vector: Vector) -> memoryview:
        return self._bytes[vector] if vector in self._bytes else bytes_of(self._row(vector.name))

    def _row(self, name: str) -> Tensor:
        return torch.from_numpy(self.batch[name])


def batch_values(share: Share, description: Mapping[str, str]) -> BatchValues:
    """Room for the values that a checkpoint describes; {}: for new ones."""
    names = description.get(_PLACES, "").split()
    return BatchValues(share, names if PARAMETERS in names else (PARAMETERS,))


LOG = logs.get(__name__)

STAGED_BYTES = 1 << 30
"""Of gradients that are not committed there may be so many bytes. If all attempts that replicas
hold are more, then those: shards that are full of different ones would wait for ever."""
ATTEMPTS_OF_A_REPLICA = 2
OTHER_PIECES = 32
"""Of replicas that are gone, winners that were not told yet, and sums of neighbouring groups: about
as many as the groups' number has digits."""

_COORDINATOR, _LAST_COMMAND = "coordinator", "order"

_REASONS = {
    WrongEvaluation: Reason.WRONG_EVALUATION,
    WrongChunk: Reason.WRONG_LAYOUT,
    StagingFull: Reason.BUSY,
}


class BatchVectors(HolderSide):
    """Versions count what has changed the vectors: commands, and returns.

    All shards go on from one cut, a checkpoint: what one of them has done since is of no use.
    """

    of = Sandblaster
    keeps_updates = False
    takes_model_from = frozenset(kind.name for kind in (Lbfgs, ConjugateGradient, GradientDescent))

    def __init__(self, config: Any, state: ShardState, records: Records, *, replicas: int) -> None:
        super().__init__(config, state, records)
        self._most_pieces = ATTEMPTS_OF_A_REPLICA * replicas + OTHER_PIECES
        self._commands = 0
        self._command_seconds = 0.0
        self._batch: BatchShard | None = None
        self.handlers[Verb.STAGE] = self._stage

    @classmethod
    def made(cls, stage: Spec, state: ShardState, records: Records) -> Self:
        method = stage.strategy.sandblaster.optimizer.rule
        return cls(method, state, records, replicas=stage.replicas.count)

    @staticmethod
    def room(kept: Any, share: Share, description: Mapping[str, str]) -> Values:
        del kept
        return batch_values(share, description)

    @property
    def batch(self) -> BatchShard:
        if self._batch is None:
            message = "a shard without values carries nothing out"
            raise AssertionError(message)
        return self._batch

    @property
    def figures(self) -> BatchFigures:
        return BatchFigures(
            staged_bytes=0 if self._batch is None else self._batch.staging.held_bytes,
            commands=self._commands,
            command_seconds=self._command_seconds,
        )

    def begin(
        self, values: Values, description: Mapping[str, str], returned_to: int | None
    ) -> None:
        super().begin(values, description, returned_to)
        if not isinstance(values, BatchValues):
            message = f"{type(values).__name__} is no room for a batch method"
            raise TypeError(message)
        share, trained = values.share, values.trained
        layout = Layout(
            elements=share.ranges[trained].count,
            chunk_elements=share.chunk_elements(trained),
            element_type=DTYPES[trained.element_type],
        )
        most = max(STAGED_BYTES, self._most_pieces * layout.bytes)
        # What was heard in this incarnation stays so: a coordinator that is over does not come
        # back.
        heard = 0 if self._batch is None else self._batch.log.coordinator
        log = ProgramLog(
            coordinator=max(heard, int(description.get(_COORDINATOR, "0"))),
            last=int(description.get(_LAST_COMMAND, "0")),
        )
        self._batch = BatchShard(layout, most, values.batch, log)
        self._describe()
        if returned_to is not None:
            self.records.returned(returned_to, log.last)
            LOG.info("returned to a checkpoint", number=returned_to, command=log.last)

    def drop(self, incarnation: SenderIncarnation) -> None:
        if self._batch is not None:
            self._batch.staging.forget(Worker(incarnation.sender, incarnation.incarnation))

    def too_early(self, header: Header) -> Refused | None:
        """From a replica that does not know yet that this incarnation of the shard is a new one."""
        is_trial = header.verb == Verb.FETCH and self._is_trial(header)
        if header.verb == Verb.STAGE or is_trial:
            return Refused(Reason.WRONG_EVALUATION, "no evaluation is under way")
        return None

    def carry_out(self, command: commands.Command) -> commands.Result:
        if self._batch is None or not self.state.is_initialised:
            return CommandFailed(message="the initial values are not complete")
        match command:
            case commands.Perform():
                return self._perform(command.order)
            case commands.Decide():
                return self._decide(command.news)
            case _:
                return super().carry_out(command)

    def _perform(self, command: Program) -> commands.Result:
        log, evaluation = self.batch.log, self.batch.staging.evaluation
        is_new = command.number > log.last
        if is_new and self.state.cut is not None:
            changing = self.batch.vectors.changed_by(command.operations, command.committed)
            self.state.cut.before_change_of([torch.from_numpy(values) for values in changing])
        began = time.perf_counter()
        try:
            performed = self.batch.carry_out(command)
        except (NotStaged, ProgramRefused, UnknownVector) as error:
            LOG.warning("a command cannot be carried out", number=command.number, error=error)
            return CommandFailed(message=str(error)[:1000], why=WhyFailed.OUT_OF_STEP)
        if is_new:
            self._commands += 1
            self._command_seconds += time.perf_counter() - began
            self.records.committed(evaluation, command)
            self.state.count += 1
            self._describe()
        return commands.Performed(performed=performed)

    def _decide(self, news: Decided) -> commands.Result:
        try:
            self.batch.decide(news)
        except (NotStaged, ProgramRefused) as error:
            return CommandFailed(message=str(error)[:1000], why=WhyFailed.OUT_OF_STEP)
        return commands.Done()

    def _describe(self) -> None:
        log = self.batch.log
        self.state.description = {_LAST_COMMAND: str(log.last), _COORDINATOR: str(log.coordinator)}

    def _stage(self, header: Header, payload: memoryview) -> Answers:
        self._check_chunk(header)
        chunk = Chunk(
            sender=Worker(header.sender, header.incarnation),
            evaluation=header.sequence,
            group=header.lease_offset,
            attempt=header.lease,
            number=header.chunk,
        )
        kind = DTYPES[self.values.trained.element_type]
        try:
            is_complete = self.batch.staging.stage(chunk, np.frombuffer(payload, kind))
        except (WrongEvaluation, WrongChunk, StagingFull) as error:
            raise Refused(_REASONS[type(error)], str(error)) from error
        return [self._staged(header)] if is_complete else []

    def _staged(self, header: Header) -> Answer:
        answer = self.state.answer(Verb.STAGED, header)
        return Answer(answer._replace(chunk=header.chunks - 1, count=0, first=0))

    def _check_chunk(self, header: Header) -> None:
        values, trained = self.values, self.values.trained
        if values.vector_of(header) == trained and values.is_whole_chunk(trained, header):
            return
        end = header.first + header.count
        sentence = f"elements {header.first} to {end} are not chunk {header.chunk} of {trained}"
        raise Refused(Reason.WRONG_LAYOUT, sentence)

    def fetched(self, header: Header) -> Vector | None:
        """Also what replicas compute with in an earlier stage: they may not know that it is over.

        A replica that joins late begins with the first stage, and computes nothing there.
        """
        named = self.values.share.placement.vector(header.vector)
        return named if self._is_of_earlier_stage(named) else super().fetched(header)

    def served(self, header: Header, part: Part, place: memoryview) -> memoryview:
        if self._is_of_earlier_stage(part.vector):
            part = part._replace(vector=self.values.trained)
        return super().served(header, part, place)

    def _is_of_earlier_stage(self, named: Vector | None) -> bool:
        if named is None or named.is_of_a_model or named.name in FETCHABLE:
            return False
        return named == self.values.trained.beside(named.name)

    def unfetchable(self, header: Header) -> Refused | None:
        now = self.batch.staging.evaluation
        if self._is_trial(header) and header.sequence != now:
            sentence = f"evaluation {now} is under way, wanted the point of {header.sequence}"
            return Refused(Reason.WRONG_EVALUATION, sentence)
        return None

    def _is_trial(self, header: Header) -> bool:
        values = self.state.values
        fetched = None if values is None else values.share.placement.vector(header.vector)
        return fetched is not None and fetched.name == TRIAL
