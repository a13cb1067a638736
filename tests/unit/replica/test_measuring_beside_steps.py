"""Evaluations between local steps: they measure the shards' values and cost no step."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from builders import placements
from builders.local_training import SAMPLES, LocalTraining, adamw, batches, local_steps
from builders.networks import a_network, a_normalised_network
from builders.parameter_servers import OneShard
from disttrain.parameter_server.client import FetchResult, Version, Versions
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.transport.interface import Buffer

ADOPTS = ("replace", "add")


@pytest.fixture
def opened() -> Iterator[list[LocalTraining]]:
    """Those made in a test, which are closed after it."""
    made: list[LocalTraining] = []
    yield made
    for each in made:
        each.close()


class SameBuffersOnce(OneShard):
    """Says as production that buffers of a version which was fetched before are not new."""

    _before: Versions = ()

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        found = super().fetch(into, fragment, steps=steps)
        changed, self._before = found.versions != self._before, found.versions
        return replace(found, buffers_changed=changed)


class Measured:
    """What the model holds whenever an evaluation comes to it."""

    def __init__(self, one: LocalTraining) -> None:
        self._one = one
        self.versions: list[tuple[Version, ...]] = []
        self.values: list[dict[str, Tensor]] = []

    def __call__(self, fetch: Callable[[], Versions]) -> None:
        self.versions.append(fetch())
        self.values.append(held(self._one))


def that_adds(opened: list[LocalTraining], server: OneShard, *, steps: int) -> LocalTraining:
    """A replica that adds its newest steps to what it fetches."""
    manifest = local_steps(steps=steps, adopt="add", optimizer=adamw())
    opened.append(LocalTraining(a_network(), server, manifest))
    return opened[-1]


def held(one: LocalTraining) -> dict[str, Tensor]:
    """All values of the model, as they are now."""
    return {name: each.detach().clone() for name, each in one.model.state_dict().items()}


def assert_same(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    assert all(torch.equal(found[name], each) for name, each in wanted.items())


def finish(one: LocalTraining) -> None:
    one.stepper.finish_measuring()


@pytest.mark.parametrize("adopt", ADOPTS)
def test_an_evaluation_measures_the_shards_values_and_leaves_the_replicas_own(
    opened: list[LocalTraining], adopt: str
) -> None:
    server = OneShard(1.0)
    manifest = local_steps(steps=16, adopt=adopt, optimizer=adamw())
    one = LocalTraining(a_normalised_network(), server, manifest)
    opened.append(one)
    there, given = held(one), batches(1)
    for _ in range(3):
        one.step(next(given))
    own, measured = held(one), Measured(one)

    one.stepper.measure(measured)
    finish(one)

    assert measured.versions == [(Version(1, 0),)]
    assert_same(measured.values[0], there)
    assert_same(held(one), own)
    assert server.pushes == []
    assert one.stepper.samples == 3 * SAMPLES


@pytest.mark.parametrize("fragments", [1, 4])
def test_evaluations_after_every_step_change_no_bit_of_a_run(
    opened: list[LocalTraining], fragments: int
) -> None:
    found = []
    for measures in (False, True):
        server = SameBuffersOnce(0.5)
        manifest = local_steps(steps=4, fragments=fragments, optimizer=adamw())
        one = LocalTraining(a_normalised_network(), server, manifest)
        opened.append(one)
        given, measured = batches(2), Measured(one)
        for _ in range(22):
            one.step(next(given))
            if measures:
                one.stepper.measure(measured)
                finish(one)
        one.stepper.flush()
        assert len(measured.versions) == 22 * measures
        found.append((held(one), server.values, len(server.pushes)))

    (own, values, pushes), (own_measured, values_measured, pushes_measured) = found
    assert_same(own_measured, own)
    assert pushes_measured == pushes
    assert all(torch.equal(values_measured[vector], each) for vector, each in values.items())


@pytest.mark.timeout(60)
def test_steps_go_on_while_the_values_to_measure_are_on_their_way(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(1.0)
    one = LocalTraining(a_network(), server, local_steps(steps=16, optimizer=adamw()))
    opened.append(one)
    given, measured = batches(3), Measured(one)
    server.fetch_gate.clear()
    one.stepper.measure(measured)
    for _ in range(5):
        one.step(next(given))
        one.stepper.between_steps()
    assert measured.versions == []

    server.fetch_gate.set()
    finish(one)
    assert measured.versions == [(Version(1, 0),)]


@pytest.mark.timeout(60)
def test_what_is_to_be_computed_with_is_fetched_first(opened: list[LocalTraining]) -> None:
    """Both come to the same memory."""
    server = OneShard(0.5)
    one = that_adds(opened, server, steps=4)
    given, measured = batches(4), Measured(one)
    server.fetch_gate.clear()
    for _ in range(4):
        one.step(next(given))
    one.stepper.measure(measured)
    assert measured.versions == []

    server.fetch_gate.set()
    finish(one)

    assert measured.versions == [(Version(1, 1),)]
    # It had nothing new of its own.
    assert torch.equal(one.parameters, server.values[placements.PARAMETERS])


@pytest.mark.timeout(60)
def test_the_end_of_an_evaluation_waits_for_the_push_before_it(
    opened: list[LocalTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, what is adopted would lack this replica's own steps."""
    server = OneShard(0.5)
    one = that_adds(opened, server, steps=4)
    given, measured = batches(4), Measured(one)
    server.gate.clear()
    for _ in range(4):
        one.step(next(given))
    one.stepper.measure(measured)
    pushes = one.connection.pushes
    wait = pushes.wait_answered

    def let_through() -> None:
        server.gate.set()
        wait()

    monkeypatch.setattr(pushes, "wait_answered", let_through)
    finish(one)

    assert measured.versions == [(Version(1, 1),)]
    assert torch.equal(one.parameters, server.values[placements.PARAMETERS])


@pytest.mark.timeout(60)
def test_a_push_that_is_due_measures_first_what_was_fetched_before(
    opened: list[LocalTraining],
) -> None:
    server = OneShard(0.5)
    one = that_adds(opened, server, steps=4)
    given, measured, before = batches(5), Measured(one), held(one)
    server.fetch_gate.clear()
    one.stepper.measure(measured)
    for _ in range(3):
        one.step(next(given))
    server.fetch_gate.set()
    one.step(next(given))
    one.connection.pushes.wait_answered()

    assert_same(measured.values[0], before)
    assert [push.samples for push in server.pushes] == [4 * SAMPLES]
    finish(one)
    assert len(measured.versions) == 1


class FetchesWhenWaitedFor(OneShard):
    """Each fetch takes longer than the steps between two pushes."""

    def __init__(self, learning_rate: float) -> None:
        super().__init__(learning_rate)
        self.waits = threading.Semaphore(1)

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        assert self.waits.acquire(timeout=20)
        return super().fetch(into, fragment, steps=steps)


@pytest.mark.timeout(60)
def test_an_evaluation_gets_its_turn_where_every_push_finds_a_fetch_under_way(
    opened: list[LocalTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = FetchesWhenWaitedFor(0.5)
    one = that_adds(opened, server, steps=1)
    fetches, given, measured = one.connection.fetches, batches(6), Measured(one)
    wait = fetches.wait

    def waits() -> FetchResult | None:
        if fetches.is_asked:
            server.waits.release()
        return wait()

    monkeypatch.setattr(fetches, "wait", waits)
    one.step(next(given))
    one.stepper.measure(measured)
    for _ in range(3):
        one.step(next(given))
        one.stepper.between_steps()
    server.waits.release()

    assert len(measured.versions) == 1


@pytest.mark.parametrize("adopt", ADOPTS)
def test_buffers_that_came_with_a_measured_model_are_computed_with_when_it_is_fetched_again(
    opened: list[LocalTraining], adopt: str
) -> None:
    """Of that version, the next fetch brings no buffers that are new."""
    server = SameBuffersOnce(1.0)
    manifest = local_steps(steps=4, adopt=adopt, optimizer=adamw())
    one = LocalTraining(a_normalised_network(), server, manifest)
    opened.append(one)
    vector = next(each for each in server.values if each.name == "buffers" and each.is_of_a_model)
    server.values[vector] += 1
    server.version += 1
    there = server.values[vector].clone()
    one.stepper.measure(Measured(one))
    finish(one)

    one.stepper.fetch_again()

    one.flat._uploaded_buffers.gather()
    assert torch.equal(one.flat._uploaded_buffers.vectors[vector].tensor, there)
