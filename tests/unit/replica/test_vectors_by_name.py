"""What a replica computes with and what it measures are vectors that its manifest names."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from builders import placements
from builders.downpours import a_downpour
from builders.parameter_servers import OneShard
from builders.replicas import tensor
from disttrain.coordinator.protocol.fields import Position
from disttrain.parameter_server.client import FetchResult, Push, PushResult
from disttrain.replica.cancellation import Cancellation
from disttrain.replica.connection import Connection, Sides
from disttrain.replica.downpour import Downpour
from disttrain.replica.flat_model import FlatModel
from disttrain.replica.pace import NeverWaits
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.vector import Vector
from disttrain.task.loss import BatchLoss
from disttrain.transport.interface import Buffer
from disttrain.transport.memory import OrdinaryMemory

AHEAD = 100.0
PREDICTED: dict[str, Any] = {
    "optimizer": {"momentum": {"learning_rate": 0.1}},
    "staleness": {"predict": {}},
}


class Predicting(OneShard):
    """Its prediction is the parameters and 100."""

    def __init__(self, learning_rate: float = 0.0) -> None:
        super().__init__(learning_rate)
        self.asked: list[str] = []

    def fetch(
        self, into: Mapping[Vector, Buffer], fragment: Fragment = WHOLE, *, steps: int = 0
    ) -> FetchResult:
        names = {placements.PARAMETERS.beside("prediction"): placements.PARAMETERS}
        self.asked += [vector.name for vector in into]
        fetched = super().fetch(
            {names.get(vector, vector): into[vector] for vector in into}, fragment, steps=steps
        )
        for vector, buffer in into.items():
            if vector in names:
                tensor(buffer, vector).add_(AHEAD)
        return fetched


class Story:
    """A model of zeros, and its loop."""

    def __init__(self, *, waits: bool) -> None:
        self.model = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(self.model.weight)
        self.server = Predicting()
        config = a_downpour(waits_for_answers=waits, **PREDICTED)
        joined = FlatModel(self.model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=2)
        sides = Sides(push=self.server, fetch=self.server)
        self.connection = Connection(joined, sides, Cancellation())
        self.connection.upload([0])
        self.loop = Downpour(self.connection, config, pace=NeverWaits())
        name = config.computes_on
        self.loop.begin(self.connection.first_fetch(lambda: None, name))

    @property
    def weights(self) -> list[float]:
        found: list[float] = self.model.weight.flatten().tolist()
        return found

    def step(self) -> None:
        gradient = self.loop.begin_step()
        loss: Tensor = self.model(torch.ones(1, 2)).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        scale = self.loop.accrue(gradient, BatchLoss(loss), 1, Position(lease=1, offset=1))
        self.loop.push()
        self.loop.adopt(gradient, scale, 1)


@pytest.fixture(params=[True, False])
def story(request: pytest.FixtureRequest) -> Iterator[Story]:
    made = Story(waits=request.param)
    yield made
    made.connection.close()


def test_steps_compute_with_the_prediction_and_evaluations_measure_the_parameters(
    story: Story,
) -> None:
    assert story.weights == [AHEAD] * 2

    story.step()
    story.loop.flush()
    story.loop.fetch_now()
    assert story.weights == [0.0] * 2

    story.loop.fetch_again()
    assert story.weights == [AHEAD] * 2
    assert story.server.asked[-2:] == ["parameters", "prediction"]
    assert set(story.server.asked[:-2]) == {"prediction"}


class Sent(Predicting):
    """Keeps what was pushed beside the gradients."""

    def __init__(self) -> None:
        super().__init__(learning_rate=0.05)
        self.sent: list[tuple[Tensor, Tensor]] = []

    def push(self, push: Push) -> list[PushResult]:
        ((vector, beside),) = push.beside.items()
        assert vector == placements.PARAMETERS.beside("curvature")
        both = (push.gradient, vector.beside("parameters")), (beside, vector)
        gradient, curvature = (tensor(buffer, of).clone() for buffer, of in both)
        self.sent.append((gradient, curvature))
        return super().push(push)


@pytest.mark.parametrize(
    ("remedy", "least"), [("delayCompensation", -AHEAD / 2), ("predictAndCompensate", AHEAD / 2)]
)
@pytest.mark.parametrize("in_flight", [0, 1])
def test_the_curvature_is_of_what_was_fetched_for_the_gradient(
    in_flight: int, remedy: str, least: float
) -> None:
    model, server = nn.Linear(2, 1, bias=False), Sent()
    config = a_downpour(
        waits_for_answers=in_flight == 0,
        optimizer={"momentum": {"learning_rate": 0.1, "weight_decay": 0.5}},
        staleness={remedy: {}},
    )
    joined = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=2)
    connection = Connection(joined, Sides(push=server, fetch=server), Cancellation())
    connection.upload([0])
    loop = Downpour(connection, config, pace=NeverWaits())
    loop.begin(connection.first_fetch(lambda: None, config.computes_on))
    computed_on = []
    for step in range(1, 5):
        gradient = loop.begin_step()
        computed_on.append(model.weight.detach().flatten().clone())
        loss: Tensor = model(torch.full((1, 2), float(step))).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        scale = loop.accrue(gradient, BatchLoss(loss), 1, Position(lease=1, offset=step))
        loop.push()
        loop.adopt(gradient, scale, 1)
    loop.flush()
    connection.close()

    assert len(server.sent) == 4
    for step, (at, (pushed, curvature)) in enumerate(
        zip(computed_on, server.sent, strict=True), start=1
    ):
        assert float(at.min()) > least
        assert torch.equal(pushed, step + 0.5 * at)
        assert torch.equal(curvature, pushed * pushed * at)


def test_what_is_uploaded_are_parameters(story: Story) -> None:
    assert set(story.server.values) == {placements.PARAMETERS}
