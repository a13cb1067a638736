"""Carrying out what the machine decides about checkpoints, in the checkpoint store."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from disttrain.checkpoint import model_map, names
from disttrain.checkpoint.errors import CheckpointError
from disttrain.checkpoint.manifest import (
    FileEntry,
    HolderEntry,
    JobIdentity,
    Manifest,
    VectorEntry,
)
from disttrain.checkpoint.stores import Store
from disttrain.coordinator.decisions.transaction import (
    AbandonCheckpoint,
    BeginCheckpoint,
    CommitCheckpoint,
    Effect,
)
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.commands import ShardWritten, VectorWritten
from disttrain.job.spec import Spec
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement


@dataclass(slots=True)
class Checkpoints:
    """Belongs to the coordinator's thread."""

    store: Store
    job: JobIdentity
    spec: Spec
    _ledgers: dict[int, FileEntry] = field(default_factory=dict)

    def carry_out(self, effect: Effect, state: State) -> str:
        """Does it; an empty text is success, else why it failed."""
        try:
            if isinstance(effect, BeginCheckpoint):
                staging = self.store.begin(effect.number)
                self._ledgers = {effect.number: staging.write_coordinator(effect.ledger)}
            elif isinstance(effect, CommitCheckpoint):
                self._commit(effect, state)
            elif isinstance(effect, AbandonCheckpoint):
                self.store.abandon(effect.number)
        except (CheckpointError, OSError) as error:
            return str(error) or type(error).__name__
        return ""

    def committed(self) -> int | None:
        latest = self.store.latest()
        return latest.manifest.number if latest is not None else None

    def _commit(self, effect: CommitCheckpoint, state: State) -> None:
        layout = state.layout or ModelLayout(tensors=())
        parts = [effect.parts[index] for index in sorted(effect.parts)]
        manifest = Manifest(
            number=effect.number,
            job=self.job,
            created=datetime.now(UTC),
            seed=self.spec.seed,
            samples=state.samples,
            update_rule=effect.update_rule,
            tensors=model_map.tensors(layout),
            pieces=model_map.pieces(layout),
            placement=state.placement or Placement(vectors=(), holders=()),
            holders=tuple(_holder(index, part) for index, part in enumerate(parts)),
            coordinator=self._ledgers[effect.number],
        )
        self.store.commit(manifest)
        self.store.retain(self.spec.checkpoint.keep_last)


def _holder(index: int, part: ShardWritten) -> HolderEntry:
    return HolderEntry(
        index=index,
        file=FileEntry(name=part.file, bytes=part.bytes, hash=part.hash),
        version=part.version,
        vectors=tuple(_vector(vector) for vector in part.vectors),
    )


def _vector(written: VectorWritten) -> VectorEntry:
    name = names.vector_file(written.hash)
    file = FileEntry(name=name, bytes=written.bytes, hash=written.hash)
    return VectorEntry(vector=written.vector, file=file)
