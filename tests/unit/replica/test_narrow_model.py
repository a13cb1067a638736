"""A replica whose gradients and parameters travel in half of the bits."""

from collections.abc import Iterator, Mapping

import pytest
import torch
from torch import nn

from builders import placements
from builders.downpours import a_downpour
from builders.parameter_servers import OneShard
from disttrain.coordinator.protocol.fields import Position
from disttrain.job.strategies.downpour import Downpour as Manifest
from disttrain.parameter_server.client import FetchResult
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory

EXACT, NARROW = placements.PARAMETERS, placements.PARAMETERS.narrow
THIRD = 1 / 3


class Noting(OneShard):
    """Notes what is asked for, and with how many bytes."""

    def __init__(self) -> None:
        super().__init__(learning_rate=1.0)
        self.asked: list[tuple[Vector, int]] = []

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        self.asked += [(vector, buffer.nbytes) for vector, buffer in into.items()]
        return super().fetch(into, fragment, steps=steps)


class Story:
    """A model of thirds, which no 16 bits are, and its loop."""

    def __init__(self, manifest: Manifest) -> None:
        self.model = nn.Linear(4, 1, bias=False)
        nn.init.constant_(self.model.weight, THIRD)
        self.server = Noting()
        memory, device = OrdinaryMemory(), torch.device("cpu")
        flat = FlatModel(self.model, memory, device, outgoing_buffers=2, formats=manifest.formats)
        sides = Sides(push=self.server, fetch=self.server)
        self.connection = Connection(flat, sides, Cancellation())
        self.connection.upload([0])
        self.loop = Downpour(self.connection, manifest, pace=NeverWaits())
        self.loop.begin(self.connection.first_fetch(lambda: None))

    def step(self, gradient: float) -> None:
        into = self.loop.begin_step()
        (self.model.weight.sum() * gradient).backward()  # type: ignore[no-untyped-call]
        scale = self.loop.accrue(into, None, 8, Position(lease=1, offset=8))
        self.loop.push()
        self.loop.adopt(into, scale, 8)

    @property
    def weight(self) -> float:
        return float(self.model.weight.detach().flatten()[0])


@pytest.fixture
def story() -> Iterator[Story]:
    made = Story(
        a_downpour(
            waits_for_answers=True,
            optimizer={"sgd": {"learningRate": 1.0}},
            push_as="bfloat16",
            fetch_as="bfloat16",
        )
    )
    yield made
    made.connection.close()


def rounded(number: float) -> float:
    return float(torch.tensor(number).bfloat16())


def single(number: float) -> float:
    return float(torch.tensor(number))


def test_what_is_uploaded_and_fetched_first_is_exact(story: Story) -> None:
    assert story.server.values[EXACT].tolist() == [single(THIRD)] * 4
    assert story.server.asked == [(EXACT, 16)]
    assert story.weight == single(THIRD)


def test_steps_compute_on_rounded_parameters_and_push_rounded_gradients(story: Story) -> None:
    story.step(gradient=0.1)
    assert story.server.asked[1:] == [(NARROW, 8)]
    assert story.weight == rounded(THIRD)
    (push,) = story.server.pushes
    assert (push.rounded_to, push.nbytes) == (ElementType.BFLOAT16, 8)
    moved = torch.tensor(THIRD) - rounded(0.1)
    assert torch.equal(story.server.values[EXACT], moved.expand(4))


def test_an_evaluation_measures_exact_parameters_and_training_goes_on_with_rounded(
    story: Story,
) -> None:
    story.loop.fetch_now()
    assert (story.server.asked[-1], story.weight) == ((EXACT, 16), single(THIRD))
    story.loop.fetch_again()
    assert (story.server.asked[-1], story.weight) == ((NARROW, 8), rounded(THIRD))


def test_fetches_alone_are_rounded_if_the_job_says_so() -> None:
    manifest = a_downpour(optimizer={"sgd": {"learningRate": 1.0}}, fetch_as="bfloat16")
    made = Story(manifest)
    made.step(gradient=0.1)
    made.loop.flush()
    made.connection.fetches.wait()
    assert [push.rounded_to for push in made.server.pushes] == [None]
    assert made.server.asked[1:] == [(NARROW, 8)]
    made.connection.close()
