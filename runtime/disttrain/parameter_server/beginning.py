"""With which values a shard begins, and where it leaves them when it is told to end."""

from disttrain.checkpoint.errors import CheckpointRefused
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.parameter_server import assembly, restoring, stopped
from disttrain.parameter_server.restoring import RestoredShard, Wanted
from disttrain.parameter_server.stopped import Saver
from disttrain.telemetry import logs

LOG = logs.get(__name__)


def restore(config: LaunchConfig, chunk_bytes: int) -> RestoredShard | None:
    """The newest that is there of this shard; None in its first life. As `restoring.restore`."""
    rule = config.job.spec.strategy.only_downpour.optimizer.rule
    wanted = Wanted(
        shard=config.shard_index,
        shards=config.job.spec.parameter_server.shards,
        chunk_bytes=chunk_bytes,
        update_rule=assembly.rule_name(rule),
        state_names=tuple(assembly.updates_for(rule).rule.initial_state),
    )
    candidates = restoring.newest(config.checkpoint_folder, config.job_uid, config.resume_from)
    saved = _saved_at_stop(saver(config), wanted)
    newest = candidates[0].manifest if candidates else None
    if saved is not None and stopped.is_newer(saved, wanted.shard, newest):
        return saved
    return restoring.restore(candidates, wanted)


def _saved_at_stop(place: Saver | None, wanted: Wanted) -> RestoredShard | None:
    try:
        return None if place is None else stopped.read(place.folder, place.job_uid, wanted)
    except CheckpointRefused as error:
        LOG.error("what was saved at the stop is damaged, a checkpoint is tried", error=error)
        return None


def saver(config: LaunchConfig) -> Saver | None:
    """Saves the exact version at the end of a life; None where nobody ends a shard alone.

    A node ends single processes by SIGTERM; under a launcher all of them end together.
    """
    if config.supervisor is not Supervisor.NODE:
        return None
    return Saver(
        folder=config.checkpoint_folder / stopped.FOLDER,
        job_uid=config.job_uid,
        update_rule=assembly.rule_name(config.job.spec.strategy.only_downpour.optimizer.rule),
    )
