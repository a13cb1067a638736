"""Sources as a data set with numbers: neighbours cost one opening, and changes are noticed."""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disttrain import Sources
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.strategies import downpour
from disttrain.job.stop import Stop
from disttrain.task.errors import DatasetError, UserCodeError
from disttrain.task.sources import SourcesReader
from disttrain.transport.header import Role
from tasks.counting import NumberedSources

WHAT = "Task.dataset('train')"


def a_reader(sources: Sources) -> SourcesReader:
    return SourcesReader(sources, WHAT)


def test_samples_are_numbered_over_all_sources() -> None:
    reader = a_reader(NumberedSources((0, 3, 0, 4, 1, 0)))
    assert len(reader) == 8
    assert reader.__getitems__(list(range(8))) == list(range(8))
    assert [reader[index] for index in (7, 2, 3)] == [7, 2, 3]


def test_neighbours_are_read_with_one_opening_of_each_source() -> None:
    sources = NumberedSources((0, 30, 40))
    reader = a_reader(sources)
    for first in range(0, 70, 7):
        reader.__getitems__(list(range(first, first + 7)))
    assert sources.openings == 2


def test_a_jump_opens_again() -> None:
    sources = NumberedSources((30,))
    assert a_reader(sources).__getitems__([4, 5, 9, 10, 4]) == [4, 5, 9, 10, 4]
    assert sources.openings == 3


def test_threads_read_by_themselves() -> None:
    reader = a_reader(NumberedSources((50, 50)))
    with ThreadPoolExecutor(1) as other:
        for first in range(0, 100, 5):
            wanted = list(range(first, first + 5))
            assert reader.__getitems__(wanted) == wanted
            assert other.submit(reader.__getitems__, wanted).result() == wanted


def test_a_forked_process_does_not_move_its_parents_place(tmp_path: Any) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(100)))

    class OneFile(NumberedSources):
        def read(self, source: int, first: int) -> Iterator[int]:
            del source
            with path.open("rb", buffering=0) as file:
                file.seek(first)
                while byte := file.read(1):
                    yield byte[0]

    reader = a_reader(OneFile((100,)))
    assert reader.__getitems__([0, 1, 2]) == [0, 1, 2]
    child = os.fork()
    if not child:
        os._exit(0 if reader.__getitems__([3, 4]) == [3, 4] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert reader.__getitems__([3, 4]) == [3, 4]


@pytest.mark.parametrize(
    ("kept", "how"),
    [((5, 3), "'part-1' .* ended after 3 of the 4 samples"), ((6, 4), "'part-0' .* goes on after")],
)
def test_a_source_that_changed_is_named(kept: Sequence[int], how: str) -> None:
    reader = a_reader(NumberedSources((5, 4), kept))
    with pytest.raises(DatasetError, match=how):
        reader.__getitems__(list(range(9)))


def test_what_a_source_raises_is_told_with_its_place_and_may_be_tried_again() -> None:
    class Torn(NumberedSources):
        is_torn = True

        def read(self, source: int, first: int) -> Iterator[int]:
            for sample in super().read(source, first):
                if sample == 7 and self.is_torn:
                    raise OSError("torn")
                yield sample

    sources = Torn((5, 4))
    reader = a_reader(sources)
    assert reader.__getitems__([5, 6]) == [5, 6]
    with pytest.raises(UserCodeError, match=r"Torn\.read\(1, 2\) of the source 'part-1' raised"):
        reader.__getitems__([7, 8])
    sources.is_torn = False
    assert reader.__getitems__([7, 8]) == [7, 8]


class Read(NumberedSources):
    """One source of `count` samples, which `how` reads from a number on."""

    def __init__(self, count: int, how: Callable[[int], Iterable[Any]]) -> None:
        super().__init__((count,))
        self.how = how

    def read(self, source: int, first: int) -> Any:
        del source
        return self.how(first)


@pytest.mark.parametrize(
    ("sources", "seen"),
    [
        (Read(10, lambda _: range(10)), r"Read\.read\(0, 1\) .* gave the samples from number 0 on"),
        (Read(10, lambda first: range(10 - first)), r"gave the samples from number 0 on"),
        (Read(2, lambda first: range(2 - first)), r"gave the samples from number 0 on"),
        (Read(10, lambda first: range(first // 9 * 9, 10)), "gave the samples from number 0 on"),
        (Read(10, lambda first: range(first + 1, 10)), r"read\(0, 9\) .* gave none"),
        (Read(10, lambda first: range(max(0, first - 1), 10)), "from number 0 on"),
        (Read(10, lambda _: (random.random() for _ in range(10))), r"read\(0, 9\) .* gave more"),
        (Read(10, lambda _: [7] * 10), r"read\(0, 9\) .* gave more"),
        (Read(9, lambda first: range(first, 12)), r"read\(0, 8\) .* gave more"),
    ],
)
def test_sources_that_cannot_begin_in_their_midst_are_refused(sources: Sources, seen: str) -> None:
    whole = rf"^spec\.task\.entrypoint: Task\.dataset\('train'\) cannot go on .*{seen}.* islice"
    with pytest.raises(DatasetError, match=whole.replace(" islice", r"itertools\.islice\(")):
        a_reader(sources).check_beginnings()


@pytest.mark.parametrize(
    "sources",
    [
        NumberedSources((0, 3, 0, 400, 20)),
        NumberedSources((0, 1, 1)),
        NumberedSources((2,)),
        Read(20, lambda first: (random.random() for _ in range(first, 20))),
        Read(20, lambda first: ((n, object()) for n in range(first, 20))),
        Read(20, lambda first: [b""] * (20 - first)),
    ],
    ids=["numbers", "one sample each", "two samples", "random", "objects", "all alike"],
)
def test_sources_that_begin_where_they_are_told_are_taken(sources: Sources) -> None:
    a_reader(sources).check_beginnings()


def test_samples_that_are_alike_by_chance_are_taken() -> None:
    """As if the sources began again; read once more, they draw other ones."""
    drawn = iter([range(9), range(8), *(range(n, n + 9) for n in (50, 70)), [0]])
    a_reader(Read(9, lambda _: next(drawn))).check_beginnings()


def test_few_samples_of_the_shortest_source_that_tells_enough_are_read() -> None:
    read: list[tuple[int, int]] = []

    class Noted(NumberedSources):
        def read(self, source: int, first: int) -> Iterator[int]:
            for sample in super().read(source, first):
                read.append((source, sample))
                yield sample

    a_reader(Noted((5, 10**6, 30))).check_beginnings()
    assert {source for source, _ in read} == {2}
    assert len(read) == 9 + 8 + 1


def test_a_source_that_began_elsewhere_is_not_said_to_have_changed() -> None:
    reader = a_reader(Read(10, lambda _: range(10)))
    assert reader.__getitems__([4, 5, 6]) == [0, 1, 2]
    said = "read from number 4 on, goes on after the 10 samples .* let read.. begin with number 4"
    with pytest.raises(DatasetError, match=said):
        reader.__getitems__([7, 8, 9])


class Named(NumberedSources):
    def __init__(self, names: Any, counts: Any = (1, 1)) -> None:
        self.given, self.counts = names, counts

    def names(self) -> Any:
        return self.given

    def count(self, source: int) -> Any:
        return self.counts[source]


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (Named([]), r"Task\.dataset\('train'\) has no sources; check the paths"),
        (Named(["a", "a"]), r"Named\.names\(\) must be texts, each once; 'a' is there twice"),
        (Named(["a", 5]), r"each once; got 5"),
        (
            Named(["a", "b"], (1, -1)),
            r"Named\.count\(1\) .* must be a whole number from 0, got -1",
        ),
        (Named(["a", "b"], (1, 1.0)), r"got 1\.0"),
    ],
)
def test_what_is_no_stream_of_sources_is_refused(sources: Sources, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        a_reader(sources)


def test_names_and_numbers_of_samples_are_the_identity() -> None:
    same = {a_reader(Named(["a", "b"], (1, 2))).digest for _ in range(2)}
    others = {a_reader(Named(*other)).digest for other in ((["a", "c"], (1, 2)), (["a", "b"],))}
    assert len(same) == 1
    assert len(same | others) == 3


def test_a_plain_loop_reads_everything_once() -> None:
    assert list(NumberedSources((0, 3, 2))) == [0, 1, 2, 3, 4]


class Readers:
    """Replicas that take leases, compute batches of them, and die between any two."""

    def __init__(self, counts: Sequence[int], portion_size: int, replicas: int) -> None:
        self.readers = [a_reader(NumberedSources(counts)) for _ in range(replicas)]
        self.incarnations = [1] * replicas
        samples = sum(counts)
        self.ledger = DataLedger(samples=samples, portion_size=portion_size, batch_size=2)
        self.portions = permutation.portions_of(0, samples, portion_size, in_order=True)
        self.trained: list[int] = []

    def step(self, index: int, *, dies: bool) -> bool:
        """One batch of a replica, or its death; whether there was anything to do."""
        member = MemberId(role=Role.REPLICA, index=index, incarnation=self.incarnations[index])
        ledger = self.ledger
        if dies:
            ledger.reconcile(member, Position(), Position())
            self.incarnations[index] += 1
            return True
        if not ledger.held(member):
            stop = Stop(epochs=2)
            lease = downpour.next_lease(ledger, index, stop)
            if lease is None and downpour.may_open_epoch(ledger, stop):
                ledger.open_epoch()
                lease = downpour.next_lease(ledger, index, stop)
            if lease is None:
                return False
            ledger.grant(member, lease)
        held = ledger.held(member)[0]
        lease, end = held.lease, min(held.offset + 2, held.lease.samples)
        numbers = self.portions(lease.portion, lease.epoch)
        wanted = numbers[lease.first + held.offset : lease.first + end].tolist()
        self.trained += self.readers[index].__getitems__(wanted)
        ledger.advance(member, Progress(position=Position(lease=lease.id, offset=end)))
        return True


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any),
    portion_size=st.integers(1, 12),
    acts=st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=60),
)
def test_each_record_is_read_once_per_epoch_whoever_dies(
    counts: list[int], portion_size: int, acts: list[tuple[int, bool]]
) -> None:
    run = Readers(counts, portion_size, replicas=3)
    for index, dies in acts:
        run.step(index, dies=dies)
    while sum(run.step(index, dies=False) for index in range(3)):
        pass
    assert sorted(run.trained) == sorted([*range(sum(counts))] * 2)
    assert (run.ledger.epochs_done, run.ledger.samples_repeated) == (2, 0)
