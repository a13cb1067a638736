"""What partitions may rely on, whether they are threads of a test or processes with sockets.

Over sockets tensors are in the host's memory, which gloo reads and fills as it is; or staged, in
other memory of the host, to which and from which they are copied; or so on a GPU.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from torch import Tensor, distributed

from builders.partitions import in_partitions
from disttrain.groups import gloo
from disttrain.parallel.communicator import Communicator

SIZE = 3
Work = Callable[[Communicator], Tensor]


def over_sockets(size: int, work: Work) -> list[Tensor]:
    store = distributed.HashStore()  # type: ignore[attr-defined]
    store.set_timeout(timedelta(seconds=60))
    barrier = threading.Barrier(size)

    def one(rank: int) -> Tensor:
        made = gloo.communicator(store, rank, size, "127.0.0.1")
        barrier.wait(60)
        return work(made)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(one, range(size)))


def staged(size: int, work: Work) -> list[Tensor]:
    """As from a GPU, which there need not be: only that the memory is not pinned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gloo, "_room", torch.empty_like)
        return over_sockets(size, work)


def on_a_gpu(size: int, work: Work) -> list[Tensor]:
    def one(peers: Communicator) -> Tensor:
        with torch.device("cuda"):
            found = work(peers)
        assert found.is_cuda
        return found.cpu()

    return over_sockets(size, one)


HAS_NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU")


@pytest.fixture(
    params=[
        in_partitions,
        over_sockets,
        staged,
        pytest.param(on_a_gpu, marks=[pytest.mark.gpu, HAS_NO_GPU]),
    ]
)
def run(request: pytest.FixtureRequest) -> Callable[[int, Work], list[Tensor]]:
    found: Callable[[int, Work], list[Tensor]] = request.param
    return found


def test_each_gets_what_each_other_sent(run: Callable[[int, Work], list[Tensor]]) -> None:
    def work(peers: Communicator) -> Tensor:
        others = [rank for rank in range(SIZE) if rank != peers.rank]
        outgoing = {to: torch.full((4,), 10.0 * peers.rank + to) for to in others}
        incoming = {source: torch.empty(4) for source in others}
        under_way = peers.exchange(outgoing, incoming)
        under_way.wait()
        assert peers.traffic.messages == 2
        assert peers.traffic.nbytes == 2 * 4 * 4
        return torch.stack([incoming[source] for source in others])[:, 0]

    assert [each.tolist() for each in run(SIZE, work)] == [[10.0, 20.0], [1.0, 21.0], [2.0, 12.0]]


def test_exchanges_one_after_the_other_stay_in_order(
    run: Callable[[int, Work], list[Tensor]],
) -> None:
    def work(peers: Communicator) -> Tensor:
        other = 1 - peers.rank
        found = []
        for number in range(20):
            into = {other: torch.empty(number + 1)}
            peers.exchange({other: torch.full((number + 1,), float(number))}, into).wait()
            found.append(into[other].sum())
        return torch.stack(found)

    wanted = [float(number * (number + 1)) for number in range(20)]
    assert [each.tolist() for each in run(2, work)] == [wanted, wanted]


def test_several_exchanges_may_be_under_way(run: Callable[[int, Work], list[Tensor]]) -> None:
    def work(peers: Communicator) -> Tensor:
        other = 1 - peers.rank
        into = [torch.empty(5_000) for _ in range(50)]
        under_way = [
            peers.exchange({other: torch.full((5_000,), float(number))}, {other: each})
            for number, each in enumerate(into)
        ]
        for each in under_way:
            each.wait()
        assert peers.sum(torch.ones(1)).item() == 2.0
        return torch.stack(into).mean(dim=1)

    assert [each.tolist() for each in run(2, work)] == [[float(n) for n in range(50)]] * 2


def exchange_threads() -> int:
    return sum(each.name == "exchange" for each in threading.enumerate())


def test_many_exchanges_under_way_have_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gloo, "_MOST_UNDER_WAY", 200)
    before = exchange_threads()

    def work(peers: Communicator) -> Tensor:
        other = 1 - peers.rank
        into = [torch.empty(1) for _ in range(300)]
        # All that one of them waits for is sent after the other has asked for it.
        expected = [peers.exchange({}, {other: each}) for each in into[:150]]
        threads = exchange_threads() - before
        sent = [peers.exchange({other: torch.tensor([float(n)])}, {}) for n in range(150)]
        for each in [*expected, *sent]:
            each.wait()
        for number in range(150, 300):
            outgoing = {other: torch.tensor([float(number)])}
            peers.exchange(outgoing, {other: into[number]}).wait()
        assert [each.item() for each in into] == [float(n) for n in range(300)]
        return torch.tensor(float(threads))

    assert all(1 <= each.item() <= 2 * 17 for each in over_sockets(2, work))


def test_one_may_send_to_one_who_sends_nothing(
    run: Callable[[int, Work], list[Tensor]],
) -> None:
    def work(peers: Communicator) -> Tensor:
        into = {0: torch.empty(2)} if peers.rank == 2 else {}
        outgoing = {2: torch.tensor([5.0, 6.0])} if peers.rank == 0 else {}
        peers.exchange(outgoing, into).wait()
        return into.get(0, torch.zeros(0))

    assert [each.tolist() for each in run(SIZE, work)] == [[], [], [5.0, 6.0]]


def numbers(rank: int, dtype: torch.dtype) -> Tensor:
    """In the host's memory."""
    generator = torch.Generator().manual_seed(rank)
    found = torch.randn(50, generator=generator, dtype=torch.float64, device="cpu")
    return (100 * found).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_sums_and_maxima_have_the_same_bits_everywhere(
    run: Callable[[int, Work], list[Tensor]], dtype: torch.dtype
) -> None:
    def work(peers: Communicator) -> Tensor:
        own = numbers(peers.rank, dtype).to(torch.get_default_device())
        kept = own.clone()
        found = torch.stack([peers.sum(own), peers.maximum(own)])
        assert torch.equal(own, kept)
        assert peers.traffic.sums == 2
        return found

    first, *others = run(SIZE, work)
    owns = [numbers(rank, dtype) for rank in range(SIZE)]
    assert all(torch.equal(first, other) for other in others)
    assert torch.allclose(first[0].double(), torch.stack(owns).sum(0).double(), rtol=1e-5)
    assert torch.equal(first[1], torch.stack(owns).amax(0))
