"""At which point a replica's model computes: fetched once per evaluation."""

import time
from concurrent.futures import Future, wait

from disttrain.parameter_server.client import Versions
from disttrain.replica.batch_connection import BatchConnection


class TrialPoint:
    """Belongs to the compute thread."""

    def __init__(self, connection: BatchConnection) -> None:
        self._connection = connection
        self._evaluation = 0
        """Whose point the model has; 0: none's."""
        self._asked = 0
        self._fetching: Future[None] | None = None
        self.waited_seconds = 0.0

    def is_here(self, evaluation: int, seconds: float) -> bool:
        """Whether the model has this evaluation's point; waits for so long at most.

        Raises EvaluationOver when a shard does not have it any more.
        """
        if self._evaluation == evaluation:
            return True
        if self._fetching is None:
            self._asked = evaluation
            self._fetching = self._connection.fetch_trial(evaluation)
        began = time.perf_counter()
        done = wait([self._fetching], seconds).done
        self.waited_seconds += time.perf_counter() - began
        return bool(done) and self._adopt() == evaluation

    def fetch_now(self) -> Versions:
        """Leave the point for the shards' present parameters. Raises Halted."""
        if self._fetching is not None:
            # Its memory is wanted; what it brings is not.
            self._connection.halt.settled(self._fetching)
            self._fetching = None
        self._evaluation = 0
        return self._connection.fetch().versions

    def _adopt(self) -> int:
        """Compute at the point that was fetched; whose it is."""
        fetching, self._fetching = self._fetching, None
        if fetching is not None:
            fetching.result()
            self._connection.model.adopt(buffers=False)
            self._evaluation = self._asked
        return self._evaluation
