"""How far predicted parameters are from those that come, measured while a shard works."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from disttrain.coordinator.protocol.reports import Predicted
from disttrain.job.update_rules.predicted_momentum import PredictedMomentum
from disttrain.parameter_server.arithmetic import rule_for
from disttrain.parameter_server.deliveries import Deliveries
from disttrain.parameter_server.prediction_error import PredictionErrors
from disttrain.parameter_server.reporting import predicted
from disttrain.parameter_server.update_rule import Chunk, FetchContext, PushContext

MOMENTUM, RATE = 0.9, 0.1


def fetch(sender: int, version: int, mean_staleness: float = 0.0) -> FetchContext:
    return FetchContext(
        sender=sender,
        mean_staleness=mean_staleness,
        steps=version,
        rate=RATE,
        live_replicas=1,
    )


def push(sender: int, version: int, staleness: int) -> PushContext:
    return PushContext(
        sender=sender,
        staleness=staleness,
        mean_staleness=0.0,
        steps=version,
        rate=RATE,
        live_replicas=1,
    )


def rested() -> PredictionErrors:
    """About to measure."""
    errors = PredictionErrors()
    for version in range(16):
        errors.applied(torch.zeros(3), push(0, version, 0))
    return errors


@dataclass
class Replicas:
    """So many push and fetch in turn, so that every gradient has the same staleness."""

    count: int
    mean_staleness: float
    seen: dict[int, Tensor] = field(default_factory=dict)

    def errors(self, rounds: int) -> dict[int, float]:
        rule = rule_for(PredictedMomentum(learning_rate=RATE, momentum=MOMENTUM))
        generator = torch.Generator().manual_seed(2)
        parameters = torch.randn(50, generator=generator, dtype=torch.float64)
        chunk = Chunk(parameters, {"velocity": torch.zeros_like(parameters)}, {})
        curvature = torch.linspace(0.001, 0.02, 50, dtype=torch.float64)
        versions = dict.fromkeys(range(self.count), 0)
        for sender in versions:
            self.seen[sender] = parameters.clone()
        for version in range(rounds * self.count):
            sender = version % self.count
            gradient = curvature * self.seen[sender]
            rule.apply(chunk, gradient, push(sender, version, version - versions[sender]))
            out = torch.empty_like(parameters)
            rule.serve(chunk, fetch(sender, version + 1, self.mean_staleness), out)
            self.seen[sender], versions[sender] = out, version + 1
        return dict(rule.prediction_errors)


def test_a_prediction_by_the_true_staleness_misses_little_of_the_way() -> None:
    found = Replicas(4, mean_staleness=3.0).errors(rounds=100)

    assert found.keys() <= set(range(4))
    assert 0.0 < max(found.values()) < 0.3


def test_it_misses_most_where_it_looks_one_step_ahead_or_far_too_many() -> None:
    right, short, far = (
        max(Replicas(4, mean).errors(rounds=100).values()) for mean in (3.0, 0.0, 12.0)
    )

    assert right < short < 1.0
    assert right < far


def test_a_measurement_is_the_part_of_the_distance_that_is_missed() -> None:
    errors = rested()
    given_out = torch.tensor([1.0, 0.0, 0.0])
    parameters = torch.zeros(3)
    errors.served(parameters, given_out, fetch(sender=1, version=5))
    # Another replica's push, and one of the same that was computed on something earlier.
    errors.applied(parameters, push(2, version=5, staleness=0))
    errors.applied(parameters, push(1, version=6, staleness=3))
    assert not errors.by_sender

    parameters.copy_(torch.tensor([4.0, 0.0, 0.0]))
    errors.applied(parameters, push(1, version=8, staleness=3))

    assert errors.by_sender == {1: pytest.approx(0.75)}


def test_the_beginning_of_a_chunk_is_measured_where_it_is_applied_in_parts() -> None:
    errors = rested()
    parameters = torch.zeros(4)
    errors.served(parameters, torch.tensor([0.5, 0.0, 9.0, 9.0]), fetch(0, 0))
    parameters[:2] = torch.tensor([1.0, 0.0])

    errors.applied(parameters[2:], push(0, 0, 0))
    assert not errors.by_sender
    errors.applied(parameters[:2], push(0, 0, 0))

    assert errors.by_sender == {0: pytest.approx(0.5)}


@pytest.mark.parametrize("staleness", [0, -1])
def test_a_prediction_is_given_up_that_nothing_can_be_held_against(staleness: int) -> None:
    errors = rested()
    parameters = torch.zeros(3)
    errors.served(parameters, torch.ones(3), fetch(0, 3))
    if staleness < 0:
        # Fetched from an earlier incarnation of the shard: nobody comes with this version.
        for _ in range(1100):
            errors.applied(parameters, push(0, 9, staleness))
    else:
        errors.applied(parameters, push(0, 9, staleness))
    for _ in range(16):
        errors.applied(parameters, push(0, 9, -1))

    errors.served(parameters, torch.ones(3), fetch(0, 10))
    parameters += 2.0
    errors.applied(parameters, push(0, 10, 0))

    assert errors.by_sender == {0: pytest.approx(0.5)}


def test_where_nothing_moves_there_is_no_ratio() -> None:
    errors = rested()
    errors.served(torch.zeros(3), torch.zeros(3), fetch(0, 0))

    errors.applied(torch.zeros(3), push(0, 0, 0))

    assert not errors.by_sender


def test_the_mean_follows_new_measurements_slowly() -> None:
    errors = PredictionErrors()
    parameters = torch.zeros(1)
    for missed in (0.5, 1.5):
        for _ in range(16):
            errors.applied(parameters, push(0, 0, -1))
        errors.served(parameters.zero_(), torch.tensor([1.0 - missed]), fetch(0, 0))
        parameters += 1.0
        errors.applied(parameters, push(0, 0, 0))

    assert errors.by_sender == {0: pytest.approx(0.625)}


def test_a_replica_that_is_gone_is_named_no_more() -> None:
    deliveries = Deliveries()
    deliveries.admit(0, 1)
    deliveries.admit(1, 1)
    deliveries.fence(1, 1)

    found = predicted({0: 0.5, 1: 0.75}, deliveries)
    assert found == {"0": Predicted(mean_staleness=0.0, error=0.5)}
