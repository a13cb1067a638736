"""Local steps in fragments: what a replica pushes and fetches in turn."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

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
from disttrain.job.strategies import local_steps as manifests
from disttrain.parameter_server.narrowing import ErrorFeedback
from disttrain.replica.errors import OptimizerRefused
from disttrain.replica.strategies.local_steps import LocalTraining as Strategy
from disttrain.state.fragments import Fragment

ADOPTS = ("replace", "add")
NAN = float("nan")


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


@pytest.mark.parametrize("adopt", ADOPTS)
@pytest.mark.parametrize("fragments", [2, 4])
@pytest.mark.parametrize(("make", "name"), [(a_network, "AdamW"), (a_normalised_network, "SGD")])
def test_one_replica_is_the_plain_loop(
    opened: list[LocalTraining], adopt: str, fragments: int, make: Any, name: str
) -> None:
    model, server = make(), OneShard(1.0)
    plain = copy.deepcopy(model)
    optimizer = {"name": name, "arguments": {"lr": 0.01}}
    manifest = local_steps(steps=16, fragments=fragments, adopt=adopt, optimizer=optimizer)
    one = LocalTraining(model, server, manifest)
    opened.append(one)
    given = batches(1)
    for _ in range(203):
        one.step(next(given))
    one.stepper.flush()

    same = getattr(torch.optim, name)(plain.parameters(), lr=0.01)
    plain_steps(plain, same, batches(1), 203)
    assert distance(server.values[placements.PARAMETERS], flat(plain)) < 1e-6
    assert server.samples == 203 * SAMPLES
    assert one.connection.pushes.answered.position.offset == 203 * SAMPLES
    for of, buffer in plain.named_buffers():
        torch.testing.assert_close(model.get_buffer(of), buffer)


def test_a_push_and_a_fetch_are_so_many_times_shorter(opened: list[LocalTraining]) -> None:
    """Eight fragments of 16 steps: one after every other step, and as many bytes in all."""
    sent = {}
    for fragments in (1, 8):
        server = OneShard(1.0)
        manifest = local_steps(steps=16, fragments=fragments, optimizer=adamw())
        one = LocalTraining(a_network(), server, manifest)
        opened.append(one)
        pushes, fetches = one.connection.pushes.transfers, one.connection.fetches.transfers
        given, found = batches(2), []
        for _ in range(64):
            before = pushes.nbytes, fetches.nbytes
            one.step(next(given))
            one.connection.pushes.wait_answered()
            found.append((pushes.nbytes - before[0], fetches.nbytes - before[1]))
        sent[fragments] = found

    most = {count: max(pushed for pushed, _ in found) for count, found in sent.items()}
    assert most[1] / most[8] > 7
    assert max(fetched for _, fetched in sent[8]) == most[8]
    for both in zip(*sent[8], strict=True), zip(*sent[1], strict=True):
        pushed, fetched = map(sum, both)
        assert pushed == fetched == 4 * most[1]
    assert [pushed > 0 for pushed, _ in sent[8]] == [False, True] * 32


@pytest.mark.parametrize("adopt", ADOPTS)
@pytest.mark.parametrize("fragments", [1, 8])
def test_a_rounded_fetch_is_half_as_long(
    opened: list[LocalTraining], adopt: str, fragments: int
) -> None:
    server, given = OneShard(1.0), batches(2)
    manifest = local_steps(
        steps=8, fragments=fragments, adopt=adopt, fetch_as="bfloat16", optimizer=adamw()
    )
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    pushes, fetches = one.connection.pushes.transfers, one.connection.fetches.transfers
    before = fetches.nbytes
    for _ in range(64):
        one.step(next(given))
        one.connection.pushes.wait_answered()
    pushed = pushes.nbytes
    one.stepper.flush()
    one.stepper._adopt(one.stepper._wait_fetched())

    # What is left of fragments is pushed at the end, and all are fetched at once.
    last = 2 * one.flat.parameters.numel() if fragments > 1 else 0
    assert fetches.nbytes - before == pushed / 2 + last
    wanted = server.values[placements.PARAMETERS]
    assert distance(one.parameters, wanted) > 0
    torch.testing.assert_close(one.parameters, wanted.bfloat16().float(), rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("adopt", ADOPTS)
@pytest.mark.parametrize("push_as", ["bfloat16", "int8"])
def test_what_rounding_takes_from_a_fragment_is_in_its_next_push(
    opened: list[LocalTraining], adopt: str, push_as: str
) -> None:
    server = OneShard(1.0)
    manifest = local_steps(steps=8, fragments=4, adopt=adopt, push_as=push_as, optimizer=adamw())
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    whole = torch.zeros(one.flat.parameters.numel(), dtype=torch.float64)
    make = one.stepper._make_difference

    def noting(fragment: Fragment) -> float:
        scale = make(fragment)
        for run in fragment.runs(len(whole)):
            whole[run.first : run.end] += one.stepper._anchor[run.first : run.end].double()
        return scale

    one.stepper._make_difference = noting  # type: ignore[method-assign]
    before, given = server.values[placements.PARAMETERS].double(), batches(2)
    for _ in range(80):
        one.step(next(given))
    one.stepper.flush()

    rounding = one.flat.outgoing[0].rounding
    assert isinstance(rounding, ErrorFeedback)
    pushed = before - server.values[placements.PARAMETERS].double()
    assert distance(pushed + rounding.rest.double(), whole) < 1e-6
    assert 0 < float(rounding.rest.norm()) < 0.1 * float(whole.norm())


def test_each_fragment_is_scaled_down_to_the_maximum_norm(opened: list[LocalTraining]) -> None:
    server = OneShard(1.0)
    manifest = local_steps(steps=8, fragments=4, maximum_norm=0.01, optimizer=adamw())
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    before, given = server.values[placements.PARAMETERS].clone(), batches(2)
    for _ in range(8):
        one.step(next(given))
    moved = server.values[placements.PARAMETERS] - before
    for number in range(4):
        runs = Fragment(number, 4).runs(len(moved))
        norm = torch.cat([moved[run.first : run.end] for run in runs]).norm()
        assert float(norm) == pytest.approx(0.01, rel=1e-4)


class Simulated:
    """A replica of the serial simulation: torch alone, and one list of numbers as the server."""

    def __init__(self, server: Tensor, rate: float, seed: int) -> None:
        self.model, self.server, self.rate = a_network(), server, rate
        vector_to_parameters(server.clone(), self.model.parameters())
        self.anchor = server.clone()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.given = batches(seed)
        self.done = 0

    def step(self, steps: int, fragments: int) -> None:
        plain_steps(self.model, self.optimizer, self.given, 1)
        self.done += 1
        turn, rest = divmod(self.done, steps // fragments)
        if rest:
            return
        own = flat(self.model).clone()
        for run in Fragment((turn - 1) % fragments, fragments).runs(len(own)):
            part = slice(run.first, run.end)
            self.server[part] -= self.rate * (self.anchor[part] - own[part])
            own[part] = self.anchor[part] = self.server[part]
        vector_to_parameters(own, self.model.parameters())


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_steps_is_its_serial_simulation(
    opened: list[LocalTraining], seed: int
) -> None:
    rate, server, initial = 1 / 3, OneShard(1 / 3), flat(a_network()).clone()
    manifest = local_steps(steps=6, fragments=3, optimizer=adamw())
    replicas = [LocalTraining(a_network(), server, manifest) for _ in range(3)]
    opened.extend(replicas)
    simulated = [Simulated(initial, rate, index) for index in range(3)]
    given, order = [batches(index) for index in range(3)], random.Random(seed)
    for _ in range(120):
        chosen = order.choices(range(3), weights=(1, 2, 5))[0]
        replicas[chosen].step(next(given[chosen]))
        simulated[chosen].step(6, 3)

    assert distance(server.values[placements.PARAMETERS], initial) < 1e-6


def test_only_its_own_new_steps_are_added_to_a_fetched_fragment(
    opened: list[LocalTraining],
) -> None:
    """Of the others nothing was fetched, so they stay as they are."""
    server = OneShard(1.0)
    manifest = local_steps(steps=16, fragments=4, adopt="add", optimizer=adamw())
    one = LocalTraining(a_network(), server, manifest)
    opened.append(one)
    given = batches(5)
    server.fetch_gate.clear()
    for _ in range(6):
        one.step(next(given))
    one.connection.pushes.wait_answered()
    server.values[placements.PARAMETERS].add_(1.0)
    before = one.parameters
    server.fetch_gate.set()
    one.stepper._adopt(one.connection.fetches.wait())

    moved = one.parameters - before
    for number in range(4):
        for run in Fragment(number, 4).runs(len(moved)):
            wanted = torch.full((run.count,), 1.0 if number == 0 else 0.0)
            torch.testing.assert_close(moved[run.first : run.end], wanted)


def test_parameters_that_are_no_numbers_are_given_up_in_all_fragments(
    opened: list[LocalTraining],
) -> None:
    """Also where those of the fragment that is pushed are."""
    server, sgd = OneShard(1.0), {"name": "SGD", "arguments": {"lr": 0.1}}
    one = LocalTraining(a_network(), server, local_steps(steps=8, fragments=4, optimizer=sgd))
    opened.append(one)
    given = batches(6)
    for _ in range(5):
        one.step(next(given))
    there = server.values[placements.PARAMETERS].clone()
    one.flat.parameters[-1] = NAN
    assert Fragment(2, 4).runs(len(there))[-1].end != len(there)
    one.stepper._push([Fragment(2, 4)])

    assert len(server.pushes) == 2
    assert torch.equal(one.parameters, there)
    assert one.stepper.counters.non_finite == 1
    for _ in range(8):
        one.step(next(given))
    assert [push.fragment.number for push in server.pushes[2:]] == [0, 1, 2, 3]
    assert torch.isfinite(one.parameters).all()


def test_more_fragments_than_blocks_of_parameters_are_refused_by_field() -> None:
    model = nn.Linear(20, 20)
    Strategy.check_model(manifests.LocalSteps(steps=30, fragments=3), model)
    expected = "spec.strategy.localSteps.fragments: each has 128 .* trains 420, got 4; take 3"
    with pytest.raises(OptimizerRefused, match=expected):
        Strategy.check_model(manifests.LocalSteps(steps=32, fragments=4), model)
