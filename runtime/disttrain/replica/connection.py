"""A model joined to the parameter server: its flat vectors, and a thread for each direction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disttrain.parameter_server.client import FetchClient, FetchResult, PushClient
from disttrain.replica.fetch_thread import FetchThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.halt import Halt
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.replica.pushes import PushThread

MakePushes = Callable[[PushClient, FlatModel, Halt, Ledger], PushThread]
MakeFetches = Callable[[FetchClient, Halt, Ledger], FetchThread]

CLOSE_SECONDS = 5.0
"""Longer than a send to a shard that takes nothing: see `TransportConfig.send_timeout`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """Both halves of the parameter server's client; each belongs to one thread."""

    push: PushClient
    fetch: FetchClient


class Connection:
    """Made when the coordinator has told who this process is. For the compute thread."""

    def __init__(
        self,
        model: FlatModel,
        sides: Sides,
        halt: Halt,
        ledger: Ledger = SILENT,
        *,
        pushes: MakePushes = PushThread,
        fetches: MakeFetches = FetchThread,
    ) -> None:
        """`pushes` and `fetches` begin the threads; those of `disttrain replay` go by a record."""
        self.model = model
        self.pushes = pushes(sides.push, model, halt, ledger)
        self.fetches = fetches(sides.fetch, halt, ledger)
        self.ledger = ledger
        self.halt = halt

    def upload(self, shards: Sequence[int]) -> None:
        """Send the model's present values to these shards; return when they have them.

        A refusal ends the process, as that of a push does.
        """
        values = self.model.values_to_upload()
        self.pushes.call(lambda: self.pushes.client.upload(values, shards))

    def first_fetch(self, meanwhile: Callable[[], None]) -> FetchResult:
        """Take over what the shards have; `meanwhile()` is called until they have answered.

        They answer only when somebody uploaded the initial values, which may be this process.
        """
        self.fetches.ask(self.model.first_fetch_into)
        while (fetched := self.fetches.take()) is None:
            meanwhile()
            self.halt.check()
        self.model.adopt_first_fetch()
        return fetched

    def close(self) -> None:
        """End the threads; what is under way is not waited for long."""
        self.halt.say()
        self.pushes.client.stop()
        self.fetches.client.stop()
        self.pushes.close(CLOSE_SECONDS)
        self.fetches.close(CLOSE_SECONDS)
        self.ledger.close()
