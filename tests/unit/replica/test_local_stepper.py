"""Local steps: what a replica pushes after its own steps, and how it takes over what it fetches."""

import copy
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from builders import placements
from builders.local_training import (
    SAMPLES,
    LocalTraining,
    adamw,
    batches,
    local_steps,
    plain_steps,
)
from builders.networks import a_network, a_normalised_network
from builders.parameter_servers import OneShard
from disttrain.parameter_server.narrowing import ErrorFeedback
from disttrain.replica import ledger
from disttrain.replica.ledger import Kind, Ledger
from disttrain.state.factors import Factors
from disttrain.state.fragments import Fragment

ADOPTS = ("replace", "add")


@pytest.fixture
def opened() -> Iterator[list[LocalTraining]]:
    """Those made in a test, which are closed after it."""
    made: list[LocalTraining] = []
    yield made
    for each in made:
        each.close()


def flat(model: nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach()


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


MakeOptimizer = Callable[[Iterator[nn.Parameter]], torch.optim.Optimizer]


class Case(NamedTuple):
    """A model, an optimizer in the manifest, and the same in PyTorch."""

    model: Callable[[], nn.Module]
    optimizer: dict[str, Any]
    plain: MakeOptimizer


CASES = (
    Case(
        a_network,
        adamw(weight_decay=0.1),
        partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
    ),
    Case(
        a_normalised_network,
        {"name": "SGD", "arguments": {"lr": 0.01, "momentum": 0.9, "nesterov": True}},
        partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True),
    ),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("adopt", ADOPTS)
def test_who_is_drained_before_the_first_parameters_are_there_still_gets_them(
    opened: list[LocalTraining], adopt: str
) -> None:
    """A replica that joins as the job ends is told so at once, and may have to evaluate."""
    model = a_network()
    one = LocalTraining(
        model, OneShard(1.0), local_steps(adopt=adopt), meanwhile=lambda stepper: stepper.flush()
    )
    opened.append(one)
    one.step(next(batches(1)))
    one.stepper.flush()
    assert one.connection.pushes.answered.pushes == 1


@pytest.mark.parametrize("adopt", ADOPTS)
@pytest.mark.parametrize("case", CASES)
def test_one_replica_is_the_plain_loop(opened: list[LocalTraining], adopt: str, case: Case) -> None:
    model, server = case.model(), OneShard(1.0)
    plain = copy.deepcopy(model)
    one = LocalTraining(model, server, local_steps(steps=7, adopt=adopt, optimizer=case.optimizer))
    opened.append(one)

    given = batches(1)
    for _ in range(200):
        one.step(next(given))
    one.stepper.flush()

    plain_steps(plain, case.plain(plain.parameters()), batches(1), 200)
    assert distance(server.values[placements.PARAMETERS], flat(plain)) < 1e-6
    assert server.samples == 200 * SAMPLES
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(model.get_buffer(name), buffer)


def test_a_push_follows_so_many_steps_and_the_wire_carries_as_many_times_less(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=16, optimizer=adamw()))
    opened.append(one)

    given, elements = batches(2), one.flat.parameters.numel()
    for _ in range(64):
        one.step(next(given))
    one.connection.pushes.wait_answered()

    assert [push.samples for push in server.pushes] == [16 * SAMPLES] * 4
    assert [push.lease_offset for push in server.pushes] == [
        SAMPLES * 16 * number for number in (1, 2, 3, 4)
    ]
    # A push and a fetch of each step would be 64 times as long as the parameters, each way.
    assert one.connection.pushes.transfers.nbytes == 4 * elements * 4
    assert one.connection.fetches.transfers.nbytes == (1 + 4) * elements * 4


def test_a_replica_whose_seconds_have_passed_pushes_before_its_steps_are_done(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(1.0)
    manifest = local_steps(steps=1000, seconds=1e-9, optimizer=adamw())
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    given = batches(2)
    for _ in range(3):
        one.step(next(given))

    assert [push.samples for push in server.pushes] == [SAMPLES] * 3


@pytest.mark.parametrize("adopt", ADOPTS)
def test_a_push_is_scaled_down_to_the_maximum_norm(opened: list[LocalTraining], adopt: str) -> None:
    bound = 0.01
    found = {}
    for maximum in (None, bound):
        server = OneShard(1.0)
        manifest = local_steps(steps=4, adopt=adopt, maximum_norm=maximum, optimizer=adamw())
        one = LocalTraining(a_network(), server, manifest)
        opened.append(one)
        before, given = server.values[placements.PARAMETERS].clone(), batches(2)
        for _ in range(4):
            one.step(next(given))
        one.stepper.flush()
        found[maximum] = server.values[placements.PARAMETERS] - before

    assert float(found[None].norm()) > 2 * bound
    assert float(found[bound].norm()) == pytest.approx(bound, rel=1e-4)
    torch.testing.assert_close(found[bound], found[None] * (bound / found[None].norm()))


@pytest.mark.parametrize("adopt", ADOPTS)
@pytest.mark.parametrize(("push_as", "times"), [("bfloat16", 2.0), ("int8", 3.5)])
def test_what_rounding_takes_from_a_push_is_in_the_next_one(
    opened: list[LocalTraining], adopt: str, push_as: str, times: float
) -> None:
    """The sum of all pushes and the rest is that of all differences: where the replica is."""
    server = OneShard(1.0)
    one = LocalTraining(
        a_network(), server, local_steps(steps=4, adopt=adopt, push_as=push_as, optimizer=adamw())
    )
    opened.append(one)
    differences, make = [], one.stepper._make_difference

    def noting(fragment: Fragment) -> float:
        scale = make(fragment)
        differences.append(one.stepper._anchor.double().clone())
        return scale

    one.stepper._make_difference = noting  # type: ignore[method-assign]
    before, given = server.values[placements.PARAMETERS].double(), batches(2)
    for _ in range(80):
        one.step(next(given))
    one.stepper.flush()

    rounding = one.flat.outgoing[0].rounding
    assert isinstance(rounding, ErrorFeedback)
    rest = rounding.rest.double()
    pushed = before - server.values[placements.PARAMETERS].double()
    whole = torch.stack(differences).sum(0)
    assert len(differences) == 20
    assert distance(pushed + rest, whole) < 1e-6
    assert 0 < float(rest.norm()) < 0.1 * float(differences[-1].norm())
    elements = one.flat.parameters.numel()
    assert 4 * elements * 20 / one.connection.pushes.transfers.nbytes >= times


def test_what_is_left_of_the_steps_is_pushed_by_a_flush(opened: list[LocalTraining]) -> None:
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=16, optimizer=adamw()))
    opened.append(one)
    given = batches(2)
    for _ in range(5):
        one.step(next(given))
    before = one.parameters

    one.stepper.flush()

    assert [push.samples for push in server.pushes] == [5 * SAMPLES]
    assert distance(server.values[placements.PARAMETERS], before) < 1e-6
    one.stepper.flush()
    assert len(server.pushes) == 1


def test_two_replicas_with_one_step_each_are_synchronous_averaging(
    opened: list[LocalTraining],
) -> None:
    manifest = local_steps(steps=1, optimizer={"name": "SGD", "arguments": {"lr": 0.1}})
    server, plain = OneShard(0.5), a_network()
    two = [LocalTraining(a_network(), server, manifest) for _ in range(2)]
    opened.extend(two)

    given, again = [batches(3), batches(4)], [batches(3), batches(4)]
    for _ in range(20):
        # Both steps begin with the same parameters, as after a barrier.
        for one in two:
            one.stepper.fetch_now()
        for one, own in zip(two, given, strict=True):
            one.step(next(own))
        mean_gradient = [torch.zeros_like(each) for each in plain.parameters()]
        for own in again:
            plain.zero_grad()
            value, label = next(own)
            torch.nn.functional.cross_entropy(plain(value), label).backward()  # type: ignore[no-untyped-call]
            for total, each in zip(mean_gradient, plain.parameters(), strict=True):
                assert each.grad is not None
                total.add_(each.grad, alpha=0.5)
        with torch.no_grad():
            for total, each in zip(mean_gradient, plain.parameters(), strict=True):
                each.sub_(total, alpha=0.1)

    assert distance(server.values[placements.PARAMETERS], flat(plain)) < 1e-6


class Simulated:
    """A replica of the serial simulation: torch alone, and one list of numbers as the server."""

    def __init__(self, server: Tensor, steps: int, rate: float, seed: int) -> None:
        self.model = a_network()
        self.server, self.steps, self.rate = server, steps, rate
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.given = batches(seed)
        self.done = 0
        self.adopt()

    def adopt(self) -> None:
        torch.nn.utils.vector_to_parameters(self.server.clone(), self.model.parameters())
        self.anchor = self.server.clone()

    def step(self) -> None:
        plain_steps(self.model, self.optimizer, self.given, 1)
        self.done += 1
        if self.done % self.steps == 0:
            self.server -= self.rate * (self.anchor - flat(self.model))
            self.adopt()


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_steps_is_its_serial_simulation(
    opened: list[LocalTraining], seed: int
) -> None:
    rate = 1 / 3
    server = OneShard(rate)
    initial = flat(a_network()).clone()
    manifest = local_steps(steps=4, optimizer=adamw())
    replicas = [LocalTraining(a_network(), server, manifest) for _ in range(3)]
    opened.extend(replicas)
    simulated = [Simulated(initial, 4, rate, index) for index in range(3)]
    given = [batches(index) for index in range(3)]

    order = random.Random(seed)
    for _ in range(120):
        chosen = order.choices(range(3), weights=(1, 2, 5))[0]
        replicas[chosen].step(next(given[chosen]))
        simulated[chosen].step()

    assert distance(server.values[placements.PARAMETERS], initial) < 1e-6
    assert server.version == sum(len(given) for given in [server.pushes])


def test_a_replica_that_adds_computes_while_its_push_is_on_its_way(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(0.5)
    one = LocalTraining(a_network(), server, local_steps(steps=4, adopt="add", optimizer=adamw()))
    opened.append(one)
    given = batches(5)
    initial = one.parameters
    server.gate.clear()
    for _ in range(4):
        one.step(next(given))
    pushed = one.parameters
    for _ in range(3):
        one.step(next(given))
    own = one.parameters - pushed
    assert server.pushes == []

    server.gate.set()
    # The next push waits for what the last one asked for, so that none is of a mixed beginning.
    one.step(next(given))
    one.connection.pushes.wait_answered()

    first, second = server.pushes
    assert first.samples == second.samples == 4 * SAMPLES
    halfway = initial + 0.5 * (pushed - initial)
    moved = server.values[placements.PARAMETERS] - halfway
    assert distance(2 * moved, pushed - initial) > 0.1
    # What the second push carries is this replica's own work since the first, nothing else.
    assert float((2 * moved - own).norm()) < 0.5 * float(own.norm())


def test_only_its_own_new_steps_are_added_to_what_is_fetched(opened: list[LocalTraining]) -> None:
    server = OneShard(0.5)
    manifest = local_steps(steps=4, adopt="add", optimizer=adamw())
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    given = batches(5)
    server.fetch_gate.clear()
    for _ in range(4):
        one.step(next(given))
    pushed = one.parameters
    for _ in range(2):
        one.step(next(given))
    own = one.parameters - pushed
    one.connection.pushes.wait_answered()
    server.values[placements.PARAMETERS].add_(1.0)
    there = server.values[placements.PARAMETERS].clone()

    server.fetch_gate.set()
    one.stepper.flush()

    # The flush pushed half of what is its own, on top of what it fetched.
    assert distance(server.values[placements.PARAMETERS] - there, 0.5 * own) < 1e-3


def test_a_push_names_the_versions_that_it_is_a_difference_to(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=4, adopt="add", optimizer=adamw()))
    opened.append(one)
    given = batches(5)
    server.fetch_gate.clear()
    for _ in range(6):
        one.step(next(given))

    server.fetch_gate.set()
    one.stepper.flush()

    assert [push.versions[0].count for push in server.pushes] == [0, 1]


@pytest.mark.parametrize("times", [1e15, 1e3])
def test_steps_that_leave_the_range_of_numbers_are_given_up_and_count_once(
    opened: list[LocalTraining], tmp_path: Path, times: float
) -> None:
    server, path = OneShard(1.0), tmp_path / "replica-0.i1.bin"
    one = LocalTraining(
        a_network(),
        server,
        local_steps(steps=16, optimizer={"name": "SGD", "arguments": {"lr": 1e15}}),
        ledger=Ledger(path),
    )
    opened.append(one)
    given, before = batches(6), one.parameters

    for _ in range(16):
        one.step(next(given), spoil=lambda loss: loss * times)
        if one.stepper.counters.non_finite:
            break

    assert server.pushes == []
    assert torch.equal(one.parameters, before)
    assert one.stepper.counters.non_finite == 1
    one.close()
    records = ledger.read(path)
    lost = records[records["kind"] == Kind.NOT_FINITE]
    assert int(lost["samples"].sum()) == one.stepper.counters.steps * SAMPLES
    assert len(lost) > 1
    assert set(lost["number"]) == {one.stepper.counters.steps - 1}


def test_a_gradient_that_is_not_finite_ends_the_steps_of_parameters_that_are_none(
    opened: list[LocalTraining],
) -> None:
    """All of it is one fault."""
    server, sgd = OneShard(1.0), {"name": "SGD", "arguments": {"lr": 1e15}}
    one = LocalTraining(a_network(), server, local_steps(steps=16, optimizer=sgd))
    opened.append(one)
    given, before = batches(6), one.parameters

    one.step(next(given), spoil=lambda loss: loss * 1e15)
    one.step(next(given), spoil=lambda loss: loss * float("nan"))

    assert server.pushes == []
    assert torch.equal(one.parameters, before)
    assert one.stepper.counters.non_finite == 1


def test_a_gradient_that_is_not_finite_makes_no_step(opened: list[LocalTraining]) -> None:
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=2, optimizer=adamw()))
    opened.append(one)
    given = batches(6)
    one.step(next(given), spoil=lambda loss: loss * float("nan"))
    one.step(next(given))
    one.connection.pushes.wait_answered()

    assert [push.samples for push in server.pushes] == [SAMPLES]
    assert one.stepper.counters.non_finite == 1


def test_a_step_is_clipped_as_in_torch(opened: list[LocalTraining]) -> None:
    optimizer = {"name": "SGD", "arguments": {"lr": 1.0}, "clip_norm": 0.01}
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=100, optimizer=optimizer))
    opened.append(one)
    before = one.parameters

    one.step(next(batches(7)))

    assert float((one.parameters - before).norm()) == pytest.approx(0.01, rel=1e-4)


class Unused(nn.Module):
    """Its second layer gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.used, self.unused = nn.Linear(64, 7), nn.Linear(5, 5)

    def forward(self, values: Tensor) -> Tensor:
        return self.used(values.flatten(1))  # type: ignore[no-any-return]


def test_a_parameter_without_a_gradient_is_left_alone(opened: list[LocalTraining]) -> None:
    model = Unused()
    before = model.unused.weight.detach().clone()
    one = LocalTraining(
        model, OneShard(1.0), local_steps(steps=2, optimizer=adamw(weight_decay=0.5))
    )
    opened.append(one)
    given = batches(8)
    for _ in range(6):
        one.step(next(given))

    assert torch.equal(model.unused.weight.detach(), before)


def test_parameters_of_a_group_have_its_rate_and_decay(opened: list[LocalTraining]) -> None:
    model, plain = Unused(), Unused()
    factors = (Factors(0, 64 * 7, 0.5, 0.0),)
    one = LocalTraining(
        model,
        OneShard(1.0),
        local_steps(steps=50, optimizer=adamw(weight_decay=0.5)),
        factors=factors,
    )
    opened.append(one)
    given = batches(9)
    for _ in range(20):
        one.step(next(given))

    groups: list[dict[str, Any]] = [
        {"params": [plain.used.weight], "lr": 0.005, "weight_decay": 0.0},
        {"params": [plain.used.bias], "lr": 0.01, "weight_decay": 0.5},
    ]
    plain_steps(plain, torch.optim.AdamW(groups), batches(9), 20)
    assert distance(flat(model), flat(plain)) < 1e-6


def test_evaluations_see_what_the_shards_have(opened: list[LocalTraining]) -> None:
    server = OneShard(0.5)
    one = LocalTraining(a_network(), server, local_steps(steps=16, optimizer=adamw()))
    opened.append(one)
    given = batches(10)
    for _ in range(3):
        one.step(next(given))
    one.stepper.flush()
    one.stepper.fetch_now()

    assert torch.equal(one.parameters, server.values[placements.PARAMETERS])
    assert one.stepper.samples == 3 * SAMPLES == server.samples
