"""A model joined to the parameter server: its flat vectors, and a thread for each direction."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from disttrain.parameter_server.client import FetchClient, FetchResult, PushClient
from disttrain.replica.agreement import ALONE, Agreement
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.client_threads import FetchThread, PushThread
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.ledger import SILENT, Ledger
from disttrain.state.vector import PARAMETERS

MakePushes = Callable[[PushClient, FlatModel, Cancellation, Ledger], PushThread]
MakeFetches = Callable[[FetchClient, Cancellation, Ledger], FetchThread]

CLOSE_SECONDS = 5.0
"""Longer than a send to a shard that takes nothing: see `TransportConfig.send_timeout`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sides:
    """Both halves of the parameter server's client; each belongs to one thread."""

    push: PushClient
    fetch: FetchClient
    agreement: Agreement = ALONE
    """With the other processes of the replica, each of which has such a connection."""


class Connection:
    """Made when the coordinator has told who this process is. For the compute thread."""

    def __init__(
        self,
        model: FlatModel,
        sides: Sides,
        cancellation: Cancellation,
        ledger: Ledger = SILENT,
        *,
        pushes: MakePushes = PushThread,
        fetches: MakeFetches = FetchThread,
    ) -> None:
        """`pushes` and `fetches` begin the threads; those of `disttrain replay` go by a record."""
        self.agreement = sides.agreement
        self.model = model
        self.pushes = pushes(sides.push, model, cancellation, ledger)
        self.fetches = fetches(sides.fetch, cancellation, ledger)
        self.fetches.agreement = sides.agreement
        self.ledger = ledger
        self.cancellation = cancellation

    def upload(self, shards: Sequence[int]) -> None:
        """Send the model's present values to these shards; return when they have them.

        All processes of a replica do so, each to those of its own. `shards`: as the first one is
        asked; others say none. A refusal ends the process, as that of a push does.
        """
        client, asked = self.pushes.client, dict.fromkeys(shards, 1)
        wanted = self.agreement.put_together(asked, client.all_shards)
        own = [shard for shard in client.shards if wanted[shard]]
        values = self.model.values_to_upload()
        self.pushes.call(lambda: client.upload(values, own))
        self.agreement.all(has=True)

    def first_fetch(
        self,
        meanwhile: Callable[[], None],
        name: str = PARAMETERS,
        tell: Callable[[], None] = lambda: None,
    ) -> FetchResult:
        """Take over what the shards have; `meanwhile()` is called until they have answered.

        `name`: of the vector that is computed with. `tell`: called once they have, before the
        values are taken over.

        They answer only when somebody uploaded the initial values, which may be this process.
        """
        self.ask_first(name)
        while not self.fetches.is_here:
            meanwhile()
            self.cancellation.check()
        tell()
        return self.take_first()

    def ask_first(self, name: str) -> None:
        """Begin the first fetch."""
        self.fetches.ask(partial(self.model.first_fetch_into, name))

    def take_first(self) -> FetchResult:
        """Take over the first fetch, once it is here. Raises Cancelled."""
        fetched = self.fetches.wait()
        assert fetched is not None  # noqa: S101  It was asked for.
        self.model.adopt_first_fetch()
        return fetched

    def working_seconds(self) -> float:
        """A clock that stands while the compute thread waits for answers or fetched values."""
        waited = self.pushes.waited_seconds + self.fetches.waited_seconds
        return self.cancellation.clock() - waited

    def close(self) -> None:
        """End the threads; what is under way is not waited for long."""
        self.cancellation.cancel()
        self.pushes.client.stop()
        self.fetches.client.stop()
        self.pushes.close(CLOSE_SECONDS)
        self.fetches.close(CLOSE_SECONDS)
        self.ledger.close()
