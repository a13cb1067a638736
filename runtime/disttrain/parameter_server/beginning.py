"""With which values a shard begins, and where it leaves them when it is told to end."""

from dataclasses import replace

from disttrain.checkpoint import stores
from disttrain.checkpoint.errors import CheckpointRefused, NoCheckpoint, StoreAway, StoreDenied
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import open_storage
from disttrain.holder.restoring import Wanted, newest
from disttrain.job import defaults
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.parameter_server import assembly, restoring, stopped
from disttrain.parameter_server.batch_shard import Reload
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.stopped import Saver
from disttrain.state.share import Share
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def restore(config: LaunchConfig, share: Share) -> RestoredShard | None:
    """The newest that is there of this shard; None in its first life. As `restoring.restore`.

    Raises StoreAway when an object store does not let it know.
    """
    try:
        return _restore(config, share)
    except StoreDenied as error:
        # The coordinator was let in, so this one may be, too, the next time.
        raise StoreAway(str(error)) from error


def _restore(config: LaunchConfig, share: Share) -> RestoredShard | None:
    wanted = _wanted(config, share)
    candidates, damaged = _candidates(config)
    saved = _saved_at_stop(saver(config), wanted)
    latest = candidates[0].manifest if candidates else None
    if saved is not None and stopped.is_newer(saved, config.shard_index, latest):
        return restoring.with_damaged(saved, damaged)
    return _restored(config, candidates, wanted, damaged)


def reloading(config: LaunchConfig) -> Reload:
    """Reads one of this run's own checkpoints."""

    def reload(number: int, share: Share) -> RestoredShard:
        found = [one for one in _candidates(config)[0] if one.manifest.number == number]
        # Who returns to the end of the warm start is not of it any more.
        makers = assembly.makers_of_method(config.job.spec.strategy.rule)
        wanted = replace(_wanted(config, share), makers=makers)
        restored = _restored(config, found, wanted)
        if restored is None:
            message = f"there is no checkpoint {number} in {config.checkpoints}"
            raise NoCheckpoint(message)
        return restored

    return reload


def _restored(
    config: LaunchConfig,
    candidates: list[Checkpoint],
    wanted: Wanted,
    damaged: tuple[int, ...] = (),
) -> RestoredShard | None:
    store = stores.open_store(config.checkpoints)
    # Those of a life that was killed meanwhile may be torn, as the machine may have died with it.
    store.drop_copies()
    try:
        return restoring.restore(candidates, replace(wanted, bring=store.bring), damaged)
    finally:
        store.drop_copies()


def _wanted(config: LaunchConfig, share: Share) -> Wanted:
    return Wanted(
        share=share,
        makers=assembly.makers(config.job.spec.strategy.rule),
        tables=restoring.TABLES,
    )


def _candidates(config: LaunchConfig) -> tuple[list[Checkpoint], tuple[int, ...]]:
    store = stores.open_store(config.checkpoints)
    return newest(store, config.job_uid, config.resume_from)


def _saved_at_stop(place: Saver | None, wanted: Wanted) -> RestoredShard | None:
    try:
        return None if place is None else _read_saved(place, wanted)
    except CheckpointRefused as error:
        LOG.error("what was saved at the stop is damaged, a checkpoint is tried", error=error)
        return None


def _read_saved(place: Saver, wanted: Wanted) -> RestoredShard | None:
    return stopped.read(place.storage, place.job_uid, wanted)


def saver(config: LaunchConfig) -> Saver | None:
    """Saves the exact version at the end of a life; None where nobody ends a shard alone.

    A node ends single processes by SIGTERM; under a launcher all of them end together. With a batch
    method one shard's vectors are of no use: all shards go on from one cut, a checkpoint.
    """
    strategy = defaults.first_stage(config.job.spec).strategy.downpour
    if config.supervisor is not Supervisor.NODE or strategy is None:
        return None
    return Saver(
        storage=open_storage(config.checkpoints),
        job_uid=config.job_uid,
        update_rule=strategy.optimizer.rule.name,
    )
