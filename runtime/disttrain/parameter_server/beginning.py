"""With which values a shard begins, and where it leaves them when it is told to end."""

from dataclasses import replace

from disttrain.checkpoint import stores
from disttrain.checkpoint.errors import CheckpointRefused, NoCheckpoint, StoreAway, StoreDenied
from disttrain.checkpoint.reading import Checkpoint
from disttrain.checkpoint.storage import open_storage
from disttrain.checkpoint.stores import Store
from disttrain.holder.restoring import Wanted, newer_ones, newest
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.parameter_server import restoring, stopped, strategies
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
    store = stores.open_store(config.checkpoints)
    candidates, damaged = newest(store, config.job_uid, config.resume_from)
    makers = strategies.makers(config.job.spec)
    wanted = Wanted(share=share, makers=makers, tables=restoring.TABLES)
    saved = _saved_at_stop(saver(config), wanted)
    latest = candidates[0].manifest if candidates else None
    if saved is not None and stopped.is_newer(saved, config.shard_index, latest):
        return replace(saved, damaged=newer_ones(damaged, saved.checkpoint))
    return _read(store, candidates, wanted, damaged)


def reload(config: LaunchConfig, number: int, share: Share) -> RestoredShard:
    """This shard's part of one of this run's own checkpoints. Takes long; any thread.

    Raises CheckpointError, WrongSnapshot.
    """
    store = stores.open_store(config.checkpoints)
    # The one that this life began with may be deleted by now.
    candidates, _ = newest(store, config.job_uid, resume_from=None)
    found = [one for one in candidates if one.manifest.number == number]
    makers = strategies.makers(config.job.spec, is_return=True)
    restored = _read(store, found, Wanted(share=share, makers=makers, tables=restoring.TABLES))
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
    # Those of a life that was killed meanwhile may be torn, as the machine may have died with it.
    store.drop_copies()
    try:
        return restoring.restore(candidates, replace(wanted, bring=store.bring), damaged)
    finally:
        store.drop_copies()


def _saved_at_stop(place: Saver | None, wanted: Wanted) -> RestoredShard | None:
    if place is None:
        return None
    try:
        return stopped.read(place.storage, place.job_uid, wanted)
    except CheckpointRefused as error:
        LOG.error("what was saved at the stop is damaged, a checkpoint is tried", error=error)
        return None


def saver(config: LaunchConfig) -> Saver | None:
    """Saves the exact version at the end of a life; None where nobody ends a shard alone.

    A node ends single processes by SIGTERM; under a launcher all of them end together.
    """
    update_rule = strategies.keeper_of_updates(config.job.spec)
    if config.supervisor is not Supervisor.NODE or update_rule is None:
        return None
    return Saver(
        storage=open_storage(config.checkpoints),
        job_uid=config.job_uid,
        update_rule=update_rule,
    )
