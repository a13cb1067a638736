"""Ranks of a replica: together they are one learner, whose batches they divide."""

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from builders import placements
from builders.local_training import LocalTraining, adamw, batches, local_steps
from builders.networks import a_network
from builders.parameter_servers import OneShard
from builders.ranks import RankedTraining, thread_groups
from disttrain.coordinator.protocol.fields import Lease
from disttrain.replica.gradient_check import PresentGradients
from disttrain.replica.parts import Part
from disttrain.replica.pipeline import Loaded
from disttrain.replica.ranks import Order, Ranks
from disttrain.replica.strategies.following_rank import AnnouncedLeases, Batches
from disttrain.replica.work import WorkItem
from disttrain.task.loss import BatchLoss

SGD = {"name": "SGD", "arguments": {"lr": 0.05, "momentum": 0.9}}


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach()


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.fixture
def opened() -> Iterator[list[LocalTraining | RankedTraining]]:
    """Those made in a test, which are closed after it."""
    made: list[LocalTraining | RankedTraining] = []
    yield made
    for each in made:
        each.close()


@pytest.mark.parametrize("samples", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_each_sample_is_in_one_part_and_the_first_part_is_a_largest_one(
    samples: int, ranks: int
) -> None:
    bounds = [Part(rank, ranks).bounds(samples) for rank in range(ranks)]
    assert [number for first, end in bounds for number in range(first, end)] == list(range(samples))
    sizes = [end - first for first, end in bounds]
    assert sizes[0] == max(sizes) <= min(sizes) + 1


def learners(
    made: list[Any], ranks: int, count: int, manifest: dict[str, Any], server: OneShard
) -> list[Any]:
    """Of one shard, one after the other."""
    found: list[Any] = []
    for _ in range(count):
        torch.manual_seed(3)
        learner: Any = LocalTraining(a_network(), server, local_steps(**manifest))
        if ranks > 1:
            learner = RankedTraining(a_network, learner, local_steps(**manifest), ranks)
        found.append(learner)
        made.append(learner)
    return found


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("ranks", "fragments"), [(2, 1), (3, 1), (2, 4)])
@pytest.mark.parametrize("optimizer", [SGD, {**adamw(weight_decay=0.1), "clipNorm": 0.5}])
def test_two_groups_equal_two_learners_of_one_rank(
    opened: list[Any], ranks: int, fragments: int, optimizer: dict[str, Any]
) -> None:
    """In one order of events: a step of the one, then a step of the other, with every push done."""
    ends: list[Tensor] = []
    for ranks_of_each in (1, ranks):
        server = OneShard(0.5)
        manifest = {"steps": 4, "fragments": fragments, "optimizer": optimizer}
        both = learners(opened, ranks_of_each, 2, manifest, server)
        of_each = [batches(5), batches(6)]
        for _ in range(40):
            for learner, given in zip(both, of_each, strict=True):
                learner.step(next(given))
                first = learner if ranks_of_each == 1 else learner.leading
                first.connection.pushes.wait_answered()
        ends.append(server.values[placements.PARAMETERS].clone())
    assert distance(ends[1], ends[0]) < 1e-5


def test_all_ranks_take_the_same_steps_bit_for_bit(opened: list[Any]) -> None:
    (one,) = learners(opened, 3, 1, {"steps": 1000, "optimizer": adamw()}, OneShard(1.0))
    given = batches(5)
    for _ in range(20):
        one.step(next(given))
    for following in one.following:
        assert torch.equal(flat(following), flat(one.leading.model))


def test_a_batch_smaller_than_the_ranks_is_still_a_whole_batch(opened: list[Any]) -> None:
    (one,) = learners(opened, 4, 1, {"steps": 1000, "optimizer": SGD}, OneShard(1.0))
    plain, given = copy.deepcopy(one.leading.model), batches(5)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        values, labels = (each[:2] for each in next(given))
        one.step((values, labels))
        optimizer.zero_grad()
        functional.cross_entropy(plain(values), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for model in (one.leading.model, *one.following):
        assert distance(flat(model), flat(plain)) < 1e-5


def test_what_leads_out_of_the_range_of_numbers_in_one_rank_is_stepped_by_in_none(
    opened: list[Any],
) -> None:
    (one,) = learners(opened, 2, 1, {"steps": 1000, "optimizer": SGD}, OneShard(1.0))
    given = batches(5)
    one.step(next(given))
    before = flat(one.leading.model).clone()
    one.step(next(given), lambda loss: loss * torch.inf)
    assert one.leading.stepper.counters.non_finite == 1
    assert torch.equal(flat(one.following[0]), before)
    # It has pushed what it had, and fetched that.
    assert distance(flat(one.leading.model), before) < 1e-6


def normalised() -> nn.Module:
    """Also of one sample."""
    return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 7))


def test_buffers_are_each_rank_s_own_and_the_leader_s_come_with_new_parameters(
    opened: list[Any],
) -> None:
    manifest = local_steps(steps=2, optimizer=SGD)
    leading = LocalTraining(normalised(), OneShard(1.0), manifest)
    one = RankedTraining(normalised, leading, manifest, 2)
    opened.append(one)
    given = batches(5)

    def means() -> list[Tensor]:
        models = (leading.model, *one.following)
        return [
            torch.cat([b.flatten().float() for name, b in model.named_buffers() if "mean" in name])
            for model in models
        ]

    for _ in range(2):
        one.step(next(given))
    leading_mean, following_mean = means()
    assert not torch.equal(leading_mean, following_mean)

    # It has pushed and fetched, and of a batch of one sample the other has none.
    values, labels = next(given)
    one.step((values[:1], labels[:1]))
    assert torch.equal(means()[1], leading_mean)


def average(losses: list[tuple[BatchLoss, Tensor]], samples: int) -> list[tuple[float, float]]:
    """What ranks make of their losses and gradients, which they change."""
    groups = thread_groups(len(losses))

    def one(number: int) -> tuple[float, float]:
        loss, gradient = losses[number]
        ranks = Ranks(groups[number], Part(number, len(losses)))
        return ranks.average(gradient, loss, samples, PresentGradients(()))

    with ThreadPoolExecutor(len(losses)) as pool:
        return list(pool.map(one, range(len(losses))))


def test_losses_over_counts_are_weighted_by_them() -> None:
    counts = [3.0, 0.0, 9.0]
    losses = [
        (BatchLoss(torch.tensor(mean), torch.tensor(mean * count), torch.tensor(count)), gradient)
        for mean, count, gradient in zip(
            [4.0, 0.0, 8.0], counts, [torch.full((5,), v) for v in (1.0, 0.0, 5.0)], strict=True
        )
    ]
    assert average(losses, samples=6) == [(7.0, 12.0)] * 3
    for _, gradient in losses:
        torch.testing.assert_close(gradient, torch.full((5,), 4.0))


def test_nothing_that_counts_anywhere_is_no_step() -> None:
    nothing = torch.tensor(0.0)
    losses = [(BatchLoss(nothing, nothing, nothing), torch.zeros(2)) for _ in range(2)]
    assert average(losses, samples=4) == [(0.0, 0.0)] * 2


def test_a_parameter_has_a_gradient_if_it_has_one_in_any_rank() -> None:
    groups = thread_groups(2)
    present = [PresentGradients([nn.Parameter(torch.zeros(1)) for _ in range(3)]) for _ in range(2)]
    present[0].present, present[1].present = [True, False, False], [False, False, True]

    def one(number: int) -> None:
        loss = BatchLoss(torch.tensor(1.0))
        Ranks(groups[number], Part(number, 2)).average(torch.zeros(3), loss, 2, present[number])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))
    assert [each.present for each in present] == [[True, False, True]] * 2


def test_batches_of_a_lease_that_was_lost_are_passed_over() -> None:
    leases, read = AnnouncedLeases(), iter([item(1, 0), item(1, 8), None, item(2, 0), item(2, 8)])
    found = Batches(leases, lambda _: next(read), lambda: None)
    first = found.find(order(1, 0))
    second = found.find(order(2, 8))
    assert (first.item.lease, first.item.first) == (1, 0)
    assert (second.item.lease, second.item.first) == (2, 8)
    assert leases.next_now() == Lease(id=1, epoch=0, portion=0, first=0, end=16)
    assert leases.next_now() == Lease(id=2, epoch=0, portion=0, first=8, end=16)
    assert leases.next_now() is None


def order(lease: int, first: int) -> Order:
    return Order(
        lease=lease, epoch=0, portion=0, first=first, end=16, samples=0, values=0, forgets=0
    )


def item(lease: int, first: int) -> Loaded:
    found = WorkItem(
        lease=lease, epoch=0, portion=0, first=first, end_offset=first + 8, indices=[0] * 8
    )
    return Loaded(found, None)
