"""A shard that serves in a thread of the test, over a real transport."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self

from builders.shard_process import JOB
from builders.transports import PATIENCE, a_config, an_address
from disttrain.coordinator.protocol.messages import ShardAddress
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.state.placement import Placement
from disttrain.transport.config import TransportKind
from disttrain.transport.factory import open_transport
from disttrain.transport.header import Role
from disttrain.transport.interface import Transport


class ShardThread:
    """Started on entry, ended on exit. `do` is for everything but messages."""

    def __init__(
        self, kind: TransportKind, folder: Path, make: Callable[[Transport], Shard]
    ) -> None:
        self._transport = open_transport(a_config(kind, job_uid=JOB, role=Role.SHARD))
        self._listener = self._transport.listen(an_address(kind, folder))
        self.shard = make(self._transport)
        self._serving = Serving(self._listener, self.shard)
        self._work: queue.Queue[tuple[Callable[[Shard], Any], Future[Any]]] = queue.Queue()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def placement(self) -> Placement:
        assert self.shard.state.values is not None
        return self.shard.state.values.share.placement

    @property
    def directory_entry(self) -> ShardAddress:
        index = self.shard.state.index
        return ShardAddress(index=index, incarnation=1, address=self._listener.address)

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes pushed and fetched so far, as a shard's metrics count them."""
        return self._serving.pushed_bytes, self._serving.fetched_bytes

    def do(self, what: Callable[[Shard], Any]) -> Any:
        """Something in the shard's thread, between two rounds of requests."""
        done: Future[Any] = Future()
        self._work.put((what, done))
        return done.result(PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE)
        self._transport.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            if not self._serving.serve_waiting():
                self._transport.wait([self._listener], 0.005)
            while not self._work.empty():
                what, done = self._work.get()
                try:
                    done.set_result(what(self.shard))
                except Exception as error:
                    done.set_exception(error)
