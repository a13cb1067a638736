"""With which values a shard begins, and which updates it has lost then.

Both its own, and those of shards that are no more.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from disttrain.checkpoint import stores
from disttrain.checkpoint.errors import CheckpointRefused, NoCheckpoint, StoreAway, StoreDenied
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import open_storage
from disttrain.checkpoint.stores import Store
from disttrain.holder.restoring import Wanted, newer_ones, newest
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.parameter_server import acknowledged, final_snapshot, restoring, strategies
from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderIncarnation
from disttrain.parameter_server.final_snapshot import SnapshotWriter
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.restoring import RestoredShard, delivered_of
from disttrain.state.layout import ModelLayout
from disttrain.state.share import Share
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def restore(config: LaunchConfig, share: Share, layout: ModelLayout) -> RestoredShard | None:
    """The newest of this shard that is there; None in its first incarnation. See `restoring`.

    `layout`: of the model, in the vectors of which it has a share. Raises StoreAway when an object
    store does not let it know.
    """
    try:
        return _restore(config, share, layout)
    except StoreDenied as error:
        # The coordinator was let in, so this one may be, too, the next time.
        raise StoreAway(str(error)) from error


def _restore(config: LaunchConfig, share: Share, layout: ModelLayout) -> RestoredShard | None:
    store = stores.open_store(config.checkpoints)
    candidates, damaged = newest(store, config.job_uid, config.resume_from)
    makers = strategies.makers(config.job.spec)
    wanted = Wanted(share=share, layout=layout, makers=makers, tables=restoring.TABLES)
    saved = _final_snapshot(saver(config), wanted)
    latest = candidates[0].manifest if candidates else None
    if saved is not None and final_snapshot.is_newer(saved, config.shard_index, latest):
        return replace(saved, damaged=newer_ones(damaged, saved.checkpoint))
    return _read(store, candidates, wanted, damaged)


def reload(
    config: LaunchConfig, layout: ModelLayout | None, number: int, share: Share
) -> RestoredShard:
    """This shard's part of one of this run's own checkpoints. Takes long; any thread.

    `layout`: None if it is the same in all of them. Raises CheckpointError, WrongSnapshot.
    """
    store = stores.open_store(config.checkpoints)
    # The one that this incarnation began with may be deleted by now.
    candidates, _ = newest(store, config.job_uid, resume_from=None)
    found = [one for one in candidates if one.manifest.number == number]
    makers = strategies.makers(config.job.spec, is_return=True)
    wanted = Wanted(share=share, layout=layout, makers=makers, tables=restoring.TABLES)
    restored = _read(store, found, wanted)
    if restored is None:
        message = f"there is no checkpoint {number} in {config.checkpoints}"
        raise NoCheckpoint(message)
    return restored


def _read(
    store: Store,
    candidates: list[Checkpoint],
    wanted: Wanted,
    damaged: tuple[int, ...] = (),
) -> RestoredShard | None:
    # Those of an incarnation that was killed meanwhile may be torn, as the machine may have died
    # with it.
    store.drop_copies()
    try:
        return restoring.restore(candidates, replace(wanted, bring=store.bring), damaged)
    finally:
        store.drop_copies()


def _final_snapshot(place: SnapshotWriter | None, wanted: Wanted) -> RestoredShard | None:
    if place is None:
        return None
    try:
        return final_snapshot.read(place.storage, place.job_uid, wanted)
    except CheckpointRefused as error:
        LOG.error("what was saved at the stop is damaged, a checkpoint is tried", error=error)
        return None


def saver(config: LaunchConfig) -> SnapshotWriter | None:
    """Saves the exact version at the end of an incarnation; None where nobody ends a shard alone.

    A node ends single processes by SIGTERM; under a launcher all of them end together.
    """
    update_rule = strategies.keeper_of_updates(config.job.spec)
    if config.supervisor is not Supervisor.NODE or update_rule is None:
        return None
    return SnapshotWriter(
        storage=open_storage(config.checkpoints),
        job_uid=config.job_uid,
        update_rule=update_rule,
    )


_NAME = re.compile(r"acknowledged-(\d{1,6})\.bin")

Table = dict[SenderIncarnation, Delivered]


class Losses:
    """The files of acknowledged counts that one shard answers for. The shard's thread."""

    def __init__(self, folder: Path, shard: int, shards: int) -> None:
        """Open them. Raises NoRoomForCounts, OSError."""
        self.own = AcknowledgedFile(_path(folder, shard))
        self._shard = shard
        self._others = {
            other: AcknowledgedFile(_path(folder, other))
            for other in _found(folder)
            if other >= shards and other % shards == shard
        }

    @property
    def are_whole(self) -> bool:
        """Whether no file was damaged; else what is lost is counted at least."""
        return all(file.is_whole for file in (self.own, *self._others.values()))

    def settle(self, restored: RestoredShard | None) -> dict[SenderIncarnation, int]:
        """From now on the files count from the checkpoint, and hold what is lost with that.

        Before anybody is told: the sums are of all incarnations, so that a report counts once,
        however often a shard is killed while it comes back. Gives what is lost since the
        incarnation before.
        """
        before = self.counts()
        # Else the values of several shards are counted together from the second time on.
        may_regain = restored is None or not restored.is_resharded
        for shard, file in self._others.items():
            table = _held(restored, shard)
            if table is not None:
                _store(file, acknowledged.rolled_back(file.counts(), table))
        table, after = _held(restored, self._shard), self.own.counts()
        if table is not None:
            after = acknowledged.rolled_back(after, table, may_regain=may_regain)
        held = restored.delivered if restored is not None else {}
        _store(
            self.own,
            {
                incarnation: _from(count, held.get(incarnation))
                for incarnation, count in after.items()
            },
        )
        return {
            incarnation: count.lost - before[incarnation].lost
            for incarnation, count in self.counts().items()
            if count.lost > before[incarnation].lost
        }

    def counts(self) -> dict[SenderIncarnation, Count]:
        """Of this shard's values, with the losses of all shards that it answers for."""
        found = self.own.counts()
        for file in self._others.values():
            for incarnation, count in file.counts().items():
                known = found.get(incarnation, Count())
                found[incarnation] = replace(known, lost=known.lost + count.lost)
        return found


def log_lost(lost: Mapping[SenderIncarnation, int], supervisor: Supervisor) -> None:
    # A node that was lost may have taken counts with it.
    said = "updates lost" if supervisor is Supervisor.LAUNCHER else "updates lost, at least"
    for incarnation, count in lost.items():
        LOG.warning(
            said, sender=incarnation.sender, incarnation=incarnation.incarnation, lost=count
        )


def record_start(records: Records, restored: RestoredShard | None, losses: Losses) -> None:
    if restored is not None:
        records.restored(restored.checkpoint, restored.version)
        for shard, previous in restored.previous.items() if restored.is_resharded else ():
            records.resharded(shard, previous.version)
    for incarnation, count in losses.counts().items():
        if count.lost:
            records.lost(incarnation, count)


def _path(folder: Path, shard: int) -> Path:
    return folder / f"acknowledged-{shard}.bin"


def _found(folder: Path) -> list[int]:
    names = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    return [int(name[1]) for name in names if name is not None]


def _held(restored: RestoredShard | None, shard: int) -> Table | None:
    """What of a shard's updates is left; None if it was settled by an earlier incarnation."""
    if restored is None:
        return {}
    previous = restored.previous.get(shard)
    return delivered_of(previous) if previous is not None else None


def _from(count: Count, held: Delivered | None) -> Count:
    """Counted from the restored values, which may be of several previous shards."""
    held = held or NOTHING
    return replace(count, pushes=held.pushes, sequence=held.sequence)


def _store(file: AcknowledgedFile, changed: dict[SenderIncarnation, Count]) -> None:
    for incarnation, count in changed.items():
        if count != file.count(incarnation):
            file.store(incarnation, count)
