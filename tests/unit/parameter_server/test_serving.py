"""Which connections a shard keeps, without a socket."""

from collections import Counter, deque

from builders import downpour_shards, placements
from builders.transports import a_chunk_header, a_header
from disttrain.job.identity import Identity
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.messages import Side
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.transport.errors import Refusal
from disttrain.transport.header import Header, Role, Verb
from disttrain.transport.interface import Payload, Request


class Wire:
    """A listener whose requests are put in by hand."""

    address = ""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.waiting: deque[Request] = deque()
        self.answers: list[tuple[bytes, Verb]] = []
        self.forgotten: list[bytes] = []

    def receive(self, timeout: float) -> Request | None:
        assert timeout == 0
        return self.waiting.popleft() if self.waiting else None

    def reply(self, to: Request | bytes, header: Header, payload: Payload = b"") -> bool:
        assert isinstance(to, Request)
        assert payload
        self.answers.append((to.peer, Verb(header.verb)))
        return True

    def forget(self, peer: bytes) -> None:
        self.forgotten.append(peer)

    def close(self) -> None:
        pass


class Served:
    """A shard that knows incarnation 1 of replica 0."""

    def __init__(self, partition: int = 0) -> None:
        """`partition`: of the model, of which it has what is trained."""
        state, count = ShardState(index=partition, incarnation=1), partition + 1
        self.shard: Shard = downpour_shards.build(state, Sgd(learning_rate=1.0))
        held = {placements.PARAMETERS._replace(partition=number): 4 for number in range(count)}
        self.shard.configure(placements.a_placement(held, count), 16)
        self.shard.admit(SenderIncarnation(0, 1))
        self.wire = Wire()
        self.serving = Serving(self.wire, self.shard)

    def hello(
        self, peer: bytes, identity: Identity | None = None, **fields: object
    ) -> list[tuple[bytes, Verb]]:
        header = a_header(Verb.HELLO, **({"count": Side.PUSH, "incarnation": 1} | fields))
        self.wire.waiting.append(Request(peer, header, memoryview(b""), identity))
        self.wire.answers.clear()
        self.serving.serve_waiting()
        return self.wire.answers


def test_a_new_connection_of_a_replica_ends_the_one_before() -> None:
    served = Served()
    assert served.hello(b"first") == [(b"first", Verb.WELCOME)]
    assert served.hello(b"second") == [(b"second", Verb.WELCOME)]
    assert served.wire.forgotten == [b"first"]
    assert served.hello(b"first") == []


def test_a_late_greeting_from_a_connection_that_was_given_up_ends_that_one() -> None:
    served = Served()
    served.hello(b"first", first=1)
    served.hello(b"third", first=3)
    served.hello(b"second", first=2)
    assert served.wire.forgotten == [b"first", b"second"]
    assert served.hello(b"third", first=3) == [(b"third", Verb.WELCOME)]
    assert served.hello(b"second", first=2) == []


def test_a_refused_hello_ends_nobodys_connection_and_is_not_remembered() -> None:
    served = Served()
    served.hello(b"living")
    for number in range(100):
        stranger = f"stranger-{number}".encode()
        assert served.hello(stranger, role=Role.LAUNCHER) == [(stranger, Verb.REFUSED)]
        assert served.hello(stranger, incarnation=2) == [(stranger, Verb.REFUSED)]
        assert served.hello(stranger, sender=number + 1) == [(stranger, Verb.REFUSED)]
    assert served.wire.forgotten == []
    assert served.hello(b"living") == [(b"living", Verb.WELCOME)]
    for sender in range(101):
        served.serving.forget(sender, 1000)
    assert served.wire.forgotten == [b"living"]


def test_the_connections_of_earlier_incarnations_end_with_the_next_ones_welcome() -> None:
    served = Served()
    for incarnation in range(1, 50):
        served.shard.admit(SenderIncarnation(0, incarnation))
        served.hello(b"push-%d" % incarnation, incarnation=incarnation)
        served.hello(b"fetch-%d" % incarnation, incarnation=incarnation, count=Side.FETCH)
    assert len(served.wire.forgotten) == 2 * 48


def test_a_certificate_of_another_replica_says_nothing_in_this_ones_name() -> None:
    served = Served()
    served.serving.instances = {0: ("pod-a.1.0",)}
    own, other = (Identity("uid", "replica", instance=f"pod-{name}.1") for name in "ab")

    assert served.hello(b"own", own) == [(b"own", Verb.WELCOME)]
    assert served.hello(b"other", other) == [(b"other", Verb.REFUSED)]
    assert served.hello(b"second", Identity("uid", "replica", 1)) == [(b"second", Verb.REFUSED)]
    assert served.hello(b"part", own._replace(partition=1)) == [(b"part", Verb.REFUSED)]

    # Nor does it end the connection of the one that it is not.
    assert served.wire.forgotten == []
    assert served.wire.refused == {Refusal.IMPOSTOR: 3}
    assert served.hello(b"first", Identity("uid", "replica", 0)) == [(b"first", Verb.WELCOME)]


def test_a_partition_speaks_by_a_certificate_of_its_own_and_with_its_own_shards() -> None:
    served = Served(partition=1)
    served.serving.instances = {0: ("pod-a.1.0", "pod-b.1.0")}
    first, second = (Identity("uid", "replica", instance=f"pod-{name}.1") for name in "ab")

    assert served.hello(b"own", second._replace(partition=1)) == [(b"own", Verb.WELCOME)]
    assert served.hello(b"other", first._replace(partition=1)) == [(b"other", Verb.REFUSED)]
    assert served.hello(b"place", second) == [(b"place", Verb.REFUSED)]
    assert served.hello(b"first", first) == [(b"first", Verb.REFUSED)]
    assert served.wire.refused == {Refusal.IMPOSTOR: 3}


def test_an_incarnation_that_the_shard_has_not_heard_of_yet_is_told_to_try_again() -> None:
    served = Served()
    served.serving.instances = {0: ("pod-a.1.0",)}
    # The replica is in another pod by now.
    served.hello(b"new", Identity("uid", "replica", instance="pod-b.1"), incarnation=2)
    assert served.shard.refused == {"unknown_sender": 1}
    assert served.wire.refused == {}


def test_a_push_in_anothers_name_changes_nothing() -> None:
    served = Served()
    served.serving.instances = {0: ("pod-a.1.0",)}
    before = served.shard.state.count
    header = a_chunk_header(Verb.PUSH, 4, incarnation=1, sequence=1, receiver_incarnation=1)
    payload = memoryview(bytes(16))
    other = Identity("uid", "replica", instance="pod-b.1")
    served.serving.serve(Request(b"other", header, payload, other))
    assert served.wire.answers == [(b"other", Verb.REFUSED)]
    assert served.shard.state.count == before
