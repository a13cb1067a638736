"""The end of a shard by SIGTERM: it serves to the last, then saves its exact version."""

import time

from disttrain.checkpoint.errors import CheckpointError
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.stopped import Saver
from disttrain.telemetry import logs

LOG = logs.get(__name__)

QUIET_SECONDS = 5.0
"""Silence of all replicas after which none is about to push: longer than a step."""
LINGER_SECONDS = 20.0
"""Of the time that a pod gets to end. Replicas that live on need not be waited for."""


class Parting:
    """Belongs to the shard's thread.

    Replicas are often told to end at the same moment, and what they push last must be answered.
    """

    def __init__(self, shard: Shard, saver: Saver) -> None:
        self.asked = 0.0
        """When a replica last asked for something."""
        self._shard = shard
        self._saver = saver
        self._since: float | None = None

    def begin(self, saved_by: int) -> None:
        """Keep older lives of this shard from saving; `saved_by` as in `RestoredShard`."""
        state = self._shard.state
        try:
            self._saver.begin(state.index, state.incarnation, saved_by)
        except CheckpointError as error:
            LOG.warning("what an older life saves from now on may be gone on from", error=error)

    def is_due(self, now: float) -> bool:
        """Whether nobody needs the shard's answers any more; the first question begins the wait."""
        if not self._shard.stage.keeps_updates:
            return True
        if self._since is None:
            self._since = now
        has_senders = bool(self._shard.state.deliveries.admitted)
        quiet = now - max(self.asked, self._since)
        return not has_senders or quiet >= QUIET_SECONDS or now - self._since >= LINGER_SECONDS

    def save(self, checkpoint: int) -> bool:
        """Whether all that this life has applied is on disk; nothing may be applied after it.

        `checkpoint` is the last one that has a part of this life, or that it began with.
        """
        state = self._shard.state
        if state.values is None or not state.is_initialised or not self._shard.stage.keeps_updates:
            return False
        began = time.perf_counter()
        try:
            self._saver.save(state, state.values, checkpoint)
        except CheckpointError as error:
            LOG.error("could not be saved; the next life begins with a checkpoint", error=error)
            return False
        self._shard.records.stopped(state.count)
        LOG.info("saved", version=state.count, seconds=time.perf_counter() - began)
        return True
