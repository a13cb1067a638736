"""Carries out the coordinator's commands to a shard."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from disttrain.checkpoint import names
from disttrain.checkpoint.stores import Parts
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.holder import writing
from disttrain.holder.writing import Cut, Writer
from disttrain.launch.background import Background
from disttrain.parameter_server import reporting
from disttrain.parameter_server.deliveries import Coverage, NotesAtCuts, SenderIncarnation
from disttrain.parameter_server.reporting import ServedMetrics
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.state.share import Share
from disttrain.telemetry import logs

LOG = logs.get(__name__)


class CommandRunner:
    """Belongs to the shard's thread. What takes long is answered later: see `finished`."""

    def __init__(
        self,
        shard: Shard,
        serving: Serving,
        chunk_bytes: int,
        metrics: ServedMetrics,
        open_parts: Callable[[str], Parts],
        reload: Callable[[int, Share], RestoredShard],
    ) -> None:
        """`reload`: reads a shard's part of a checkpoint of this number, in a thread."""
        self.is_ended = False
        """The coordinator said that this is the end."""
        self.checkpointed = shard.state.count
        """Version of the last values that are on disk."""
        self.checkpoint = 0
        """Number of the checkpoint that they are in."""
        self.coverage = Coverage(kept=1)
        self.foldable: NotesAtCuts[int] = NotesAtCuts(checkpoints=1)
        """Up to that of the oldest checkpoint kept, the shard is never rolled back."""
        self.write: Callable[[Cut, Parts], Writer] = Writer
        """Begins to write a checkpoint."""
        self._shard = shard
        self._serving = serving
        self._chunk_bytes = chunk_bytes
        self._metrics = metrics
        self._open_parts = open_parts
        self._reload = reload
        self._writing: tuple[NumberedCommand, Writer] | None = None
        self._next: tuple[NumberedCommand, commands.Checkpoint] | None = None
        """Waits until an earlier checkpoint, which was given up, has stopped writing."""
        self._reader = Background("checkpoint-reader")
        self._returns: deque[tuple[NumberedCommand, commands.RollBack, Future[RestoredShard]]] = (
            deque()
        )
        """In the order in which they came. Reading takes long, and heartbeats must go on."""

    @property
    def is_writing(self) -> bool:
        return self._writing is not None

    def carry_out(self, numbered: NumberedCommand) -> Result | None:
        """The answer; None if it comes later."""
        match numbered.order:
            case commands.Configure() as command:
                return self._configure(command)
            case commands.Fence() as command:
                return self._fence(command)
            case commands.Checkpoint() as command:
                return self._checkpoint(numbered, command)
            case commands.RollBack() as command:
                share = self._shard.stage.values.share
                read = self._reader.submit(partial(self._reload, command.checkpoint, share))
                self._returns.append((numbered, command, read))
                return None
            case commands.End():
                self.is_ended = True
            case _:
                return self._shard.stage.carry_out(numbered.order)
        return commands.Done()

    def finished(self) -> tuple[NumberedCommand, Result] | None:
        return self._returned() or self._finished_checkpoint()

    def _configure(self, command: commands.Configure) -> Result:
        if command.placement is None:
            return commands.CommandFailed(message="the command tells no placement")
        self._shard.state.train_samples = command.train_samples
        self._shard.configure(command.placement, self._chunk_bytes)
        return commands.Done()

    def _finished_checkpoint(self) -> tuple[NumberedCommand, Result] | None:
        if self._writing is None or not self._writing[1].is_over:
            return None
        numbered, writer = self._writing
        self._writing = None
        self._shard.state.cut = None
        if self._next is not None:
            following, self._next = self._next, None
            self._checkpoint(*following)
        return numbered, self._written(writer)

    def _fence(self, command: commands.Fence) -> Result:
        incarnation = SenderIncarnation(command.index, command.incarnation)
        self._shard.state.live_replicas = max(1, command.live_replicas)
        known = self._shard.fence(incarnation)
        self._serving.forget(command.index, command.incarnation)
        return commands.Fenced(
            sender=reporting.position_of(incarnation, known),
            acknowledged=known.pushes,
            partial_chunks=known.next_chunk,
        )

    def _returned(self) -> tuple[NumberedCommand, Result] | None:
        if not self._returns or not self._returns[0][2].done():
            return None
        numbered, command, read = self._returns.popleft()
        result = self._shard.return_to(command.checkpoint, read.result)
        if isinstance(result, commands.Done):
            self.checkpoint, self.checkpointed = command.checkpoint, self._shard.state.count
        return numbered, result

    def _checkpoint(self, numbered: NumberedCommand, command: commands.Checkpoint) -> Result | None:
        state = self._shard.state
        if state.values is None or not state.is_initialised:
            return commands.CommandFailed(message="the initial values are not complete")
        if self._writing is not None:
            self._next = (numbered, command)
            return None
        self._shard.forget(self.coverage.cut(command.number, command.committed))
        settled = self.foldable.cut(command.number, state.count, command.committed)
        if settled is not None:
            self._shard.records.settled(settled)
        if command.final:
            self._shard.stage.finish()
        made = writing.cut(command.number, state.values, state.notes())
        state.cut = made
        self._writing = (numbered, self.write(made, self._open_parts(command.folder)))
        return None

    def _written(self, writer: Writer) -> Result:
        made = writer.cut
        if made.written is None:
            self._metrics.checkpoint_failures += 1
            LOG.error("a checkpoint could not be written", number=made.number, error=made.error)
            return commands.CommandFailed(message=str(made.error)[:1000])
        self.checkpointed = made.notes.version
        self.checkpoint = made.number
        made.immutable.remember()
        self._metrics.checkpoint_seconds.observe(made.seconds)
        self._metrics.blocking_seconds.observe(made.blocking_seconds)
        size = made.written.bytes + made.immutable.written_bytes
        LOG.info("checkpoint written", number=made.number, bytes=size)
        return commands.ShardWritten(
            file=names.part_file(self._shard.state.index),
            bytes=made.written.bytes,
            hash=made.written.hash,
            version=made.notes.version,
            vectors=tuple(
                commands.VectorWritten(
                    vector=vector.vector, bytes=vector.file.bytes, hash=vector.file.hash
                )
                for vector in made.immutable.entries
            ),
            blocking_seconds=made.blocking_seconds,
        )
