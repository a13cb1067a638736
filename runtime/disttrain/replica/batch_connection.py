"""A model joined to the shards for a batch method: its flat vectors, and the threads beside it."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from disttrain.parameter_server.client import FetchResult, Stage, Versions
from disttrain.replica.connection import CLOSE_SECONDS, Sides
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.flat_vector import Gradient
from disttrain.replica.halt import Halt
from disttrain.replica.transfers import Transfers
from disttrain.sandblaster.names import TRIAL

T = TypeVar("T")


class BatchConnection:
    """For the compute thread. What is begun here ends in one thread per direction, in order."""

    def __init__(
        self,
        model: FlatModel,
        sides: Sides,
        halt: Halt,
        transfers: tuple[Transfers, Transfers],
    ) -> None:
        """`transfers`: where pushes and fetches are noted."""
        self.model = model
        self.halt = halt
        self.pushes, self.fetches = transfers
        self._sides = sides
        self._push_thread = ThreadPoolExecutor(1, "push")
        self._fetch_thread = ThreadPoolExecutor(1, "fetch")

    def upload(self, shards: Sequence[int]) -> None:
        """Send the model's present values to these shards; return when they have them."""
        values = self.model.values_to_upload()
        self.halt.result(self._push_thread.submit(self._sides.push.upload, values, shards))

    def stage(
        self, stage: Stage, gradient: Gradient, then: Callable[[tuple[int, ...]], T]
    ) -> "Future[T]":
        """Send a gradient; until that is done nothing may be written to it.

        When all shards have it, the thread that sent it calls `then` with their incarnations, and
        the future has what that gives. It may raise EvaluationOver.
        """
        gradient.gradient.leave()

        def send() -> T:
            began = time.perf_counter()
            gradient.gradient.wait_left()
            staged = self._sides.push.stage(stage)
            self.pushes.add(time.perf_counter() - began, stage.gradient.nbytes)
            return then(staged)

        return self._push_thread.submit(send)

    def fetch_trial(self, evaluation: int) -> "Future[None]":
        """Fetch the point of an evaluation for `FlatModel.adopt`; may raise EvaluationOver."""

        def fetch() -> None:
            began = time.perf_counter()
            into = self.model.trial_into()
            self._sides.fetch.fetch_trial(evaluation, self.model.vector.beside(TRIAL), into)
            self.model.land_trial()
            self.fetches.add(time.perf_counter() - began, into.nbytes)

        return self._fetch_thread.submit(fetch)

    def fetch(self) -> FetchResult:
        """Compute with the shards' present values from now on. Raises Halted."""

        def fetch() -> FetchResult:
            fetched = self._sides.fetch.fetch(self.model.fetch_into())
            self.model.land()
            return fetched

        fetched = self.halt.result(self._fetch_thread.submit(fetch))
        self.model.adopt(buffers=fetched.buffers_changed)
        return fetched

    def first_fetch(self, meanwhile: Callable[[], None]) -> FetchResult:
        """As `connection.Connection.first_fetch`."""
        into = self.model.first_fetch_into()
        fetching = self._fetch_thread.submit(self._sides.fetch.fetch, into)
        while not fetching.done():
            meanwhile()
            self.halt.check()
        self.model.adopt_first_fetch()
        return fetching.result()

    def release(self) -> None:
        """End the threads, with nothing under way: the model goes on without them."""
        wait(self._ends())

    def close(self) -> None:
        """End the threads; what is under way is not waited for long."""
        self.halt.say()
        self._sides.push.stop()
        self._sides.fetch.stop()
        wait(self._ends(), CLOSE_SECONDS)

    def _ends(self) -> list["Future[None]"]:
        ends = [
            self._push_thread.submit(self._sides.push.close),
            self._fetch_thread.submit(self._sides.fetch.close),
        ]
        self._push_thread.shutdown(wait=False)
        self._fetch_thread.shutdown(wait=False)
        return ends


class TrialPoint:
    """At which point a replica's model computes, fetched once per evaluation.

    Belongs to the compute thread.
    """

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
