"""A shard's process, whose disk fails now and then and is slow."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from disttrain.checkpoint.errors import NotWritten
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.stores import Parts
from disttrain.coordinator.protocol.commands import (
    CommandFailed,
    NumberedCommand,
    Perform,
    Performed,
    Result,
    WhyFailed,
)
from disttrain.holder.writing import Cut, Writer
from disttrain.job.names import Role
from disttrain.parameter_server import server
from disttrain.parameter_server.ledger import RECORD
from disttrain.parameter_server.server import ShardProcess, Surroundings
from disttrain.parameter_server.shard import Shard
from disttrain.transport.header import Role as TransportRole
from simulation.world import TICK_SECONDS, Incarnation, InTurn, World, as_any, silent

T = TypeVar("T")

_NOT_STAGED = ("do not make evaluation", "are not staged here")


class SimShard(Incarnation):
    """One incarnation of one shard."""

    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, TransportRole.SHARD)
        self.index = index
        self.shard: Shard | None = None
        """Once it has joined."""
        self._heard = 0
        """The newest coordinator that has ordered something of a batch method."""
        self.run(self._serve)

    def _serve(self) -> None:
        listener = self.transport.listen(f"tcp://shard-{self.index}:0")
        surroundings = Surroundings(
            self.transport, listener, silent(), self.world.chance.random, self.pid
        )
        process = server.join(self.world.config(Role.SHARD, self.index), surroundings)
        self._disturb(process)
        process.run(self.world.job.spec.coordinator.member_timeout_seconds)
        self.end()

    def _disturb(self, process: ShardProcess) -> None:
        runner = process.runner
        self.shard = runner._shard
        self.shard.records.every_chunk = True
        open_parts, carry_out = runner._open_parts, runner.carry_out
        as_any(runner).carry_out = partial(self._carry_out, carry_out)
        runner._reader = as_any(_SlowReader(self))
        runner.write = self._write
        process.idle_seconds = TICK_SECONDS
        runner._open_parts = lambda folder: as_any(_SlowParts(open_parts(folder), self.world))

    def _carry_out(
        self, carry_out: Callable[[NumberedCommand], Result | None], command: NumberedCommand
    ) -> Result | None:
        """A good coordinator makes no shard fail because something is not staged."""
        result = carry_out(command)
        if isinstance(result, CommandFailed) and result.why is WhyFailed.OUT_OF_STEP:
            if any(words in result.message for words in _NOT_STAGED):
                self.world.violations.append(f"shard {self.index}: {result.message}")
        elif isinstance(command.order, Perform) and isinstance(result, Performed):
            coordinator = command.order.order.coordinator
            if coordinator < self._heard:
                self.world.violations.append(f"shard {self.index} obeyed an old coordinator")
            self._heard = max(self._heard, coordinator)
        return result

    def _write(self, made: Cut, parts: Parts) -> Writer:
        assert self.shard is not None
        ledger = self.shard.records.ledger
        assert ledger is not None
        records = ledger._file._whole_bytes // RECORD.itemsize
        self.world.cuts[made.number, self.index] = (self.shard.state.incarnation, records)
        return Writer(made, parts, start=self.run)


class _SlowReader(InTurn):
    """Reads checkpoints."""

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        def read() -> T:
            self.incarnation.world.network.time.wait(
                self.incarnation.world.chance.uniform(0.0, 0.3)
            )
            return call()

        return super().submit(read)


class _SlowParts:
    """Time passes between the pieces that are written, and updates go on."""

    def __init__(self, parts: Parts, world: World) -> None:
        self._parts = parts
        self._world = world

    def write_part(
        self, index: int, contents: Sequence[Content], metadata: Mapping[str, str]
    ) -> Written:
        slow = [replace(content, pieces=self._slowly(content)) for content in contents]
        if self._world.chance.random() < self._world.checkpoint_failure:
            message = "the disk is full"
            raise NotWritten(message)
        return self._parts.write_part(index, slow, metadata)

    def _slowly(self, content: Content) -> Iterator[Any]:
        for piece in content.pieces:
            self._world.network.time.wait(
                self._world.chance.uniform(0.0, self._world.write_seconds)
            )
            yield piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts, name)
