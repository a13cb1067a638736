"""Local steps without a quorum, beside a serial loop over the same events in the same order.

Shards, clients and replicas are production's. The order is that of virtual time, whose machines are
drawn: pushes and fetches of several replicas come between the steps of others.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from builders.simulated_jobs import a_setting
from disttrain import Batch
from disttrain.parameter_server.client import Push, PushResult
from disttrain.simulation.machines import Machines
from disttrain.simulation.replica import SimulatedReplica
from disttrain.simulation.run import SimulatedRun
from disttrain.state.vector import PARAMETERS
from disttrain.transport.header import ElementType, Header, Verb
from oracles.local_steps import Rules, Serial
from tasks.proving import Proving

REPLICAS, STEPS, RATE = 3, 4, 0.05
MACHINES = st.builds(
    Machines,
    step_seconds=st.just(0.1),
    jitter=st.sampled_from([0.0, 0.3]),
    slower=st.dictionaries(st.integers(0, REPLICAS - 1), st.floats(1.0, 5.0)),
    latency_seconds=st.sampled_from([0.0001, 0.04, 0.15]),
    bytes_per_second=st.sampled_from([None, 1e5]),
)
AVERAGE = Rules(replicas=REPLICAS)
CASES: dict[str, tuple[dict[str, Any], Rules]] = {
    "add": ({"outer": {"average": {}}}, AVERAGE),
    "replace": ({"outer": {"average": {}}, "adopt": "replace"}, AVERAGE),
    "nesterov": (
        {"outer": {"nesterov": {"learningRate": 0.7, "momentum": 0.6}}},
        Rules(replicas=REPLICAS, rate=0.7, momentum=0.6),
    ),
    "delayed nesterov": (
        {"outer": {"delayedNesterov": {"learningRate": 0.7, "momentum": 0.6}}},
        Rules(replicas=REPLICAS, rate=0.7, momentum=0.6, is_delayed=True),
    ),
    "int8": ({"pushAs": "int8"}, AVERAGE),
    "bfloat16, nesterov": (
        {"pushAs": "bfloat16", "outer": {"nesterov": {"learningRate": 0.7, "momentum": 0.6}}},
        Rules(replicas=REPLICAS, rate=0.7, momentum=0.6),
    ),
    "fetched as bfloat16": (
        {"fetchAs": "bfloat16"},
        Rules(replicas=REPLICAS, rounds_fetches=True),
    ),
    "fetched as bfloat16, replace, int8": (
        {"fetchAs": "bfloat16", "adopt": "replace", "pushAs": "int8"},
        Rules(replicas=REPLICAS, rounds_fetches=True),
    ),
    "full age": ({"outer": {"average": {"fullAge": 1}}}, Rules(replicas=REPLICAS, full_age=1)),
}


class Watched(Proving):
    """Tells which model sees which batch, and what its step draws from."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Callable[[int, Batch, int], None] = lambda *_: None

    def loss(self, model: nn.Module, batch: Batch) -> Any:
        if torch.is_grad_enabled():
            self.seen(id(model), batch, torch.initial_seed())
        return super().loss(model, batch)


class Recorded:
    """A run, and what happens in it, as things to do with its serial loop."""

    def __init__(self, local: dict[str, Any], machines: Machines, seed: int) -> None:
        task = Watched()
        sgd = {"name": "SGD", "arguments": {"lr": RATE}}
        setting = a_setting(
            task,
            strategy={"localSteps": {"steps": STEPS, "optimizer": sgd, **local}},
            stop={"samples": 8 * STEPS * REPLICAS * 4},
            parameterServer={"shards": 2},
            seed=seed,
        )
        self.run = SimulatedRun(setting, machines, REPLICAS, evaluate_every=10**6)
        self.events: list[Callable[[Serial], None]] = []
        learner = self.run.evaluations.learner.module
        self.initial = parameters_to_vector(learner.parameters()).detach().clone()
        for number, shard in enumerate(self.run.shards):
            handle = partial(self._handled, number, shard.shard.handle)
            shard.shard.handle = handle  # type: ignore[method-assign]
        numbers: dict[int, int] = {}
        for index, member in enumerate(self.run._members):
            numbers[id(member._learner.module)] = index
            self._watch(index, member)

        def seen(model: int, batch: Batch, draws: int) -> None:
            index = numbers[model]
            self.events.append(lambda to: to.replicas[index].step(batch, draws))

        task.seen = seen
        self.run.run()

    def serial(self, rules: Rules) -> Serial:
        """The same in one loop."""
        of = [shard.values.share.range_of(shard.values.trained) for shard in self.run.shards]
        found = Serial(Proving(), rules, self.initial, [(each.first, each.end) for each in of])
        for event in self.events:
            event(found)
        return found

    @property
    def parameters(self) -> Tensor:
        (found,) = [each for name, each in self.run.values().items() if name.name == PARAMETERS]
        return found

    def _handled(self, shard: int, handle: Any, header: Header, payload: memoryview) -> Any:
        vector, sender = self.run.setting.placement.vector(header.vector), header.sender
        if header.verb in {Verb.PUSH, Verb.FETCH} and vector is not None and vector.is_trained:
            happens = Serial.arrives if header.verb == Verb.PUSH else Serial.gives
            self.events.append(lambda to: happens(to, sender, shard))
        return handle(header, payload)

    def _watch(self, index: int, member: SimulatedReplica) -> None:
        client, stepper = member.connection.pushes.client, member._stepper
        push, take_over = client.push, stepper._take_over

        def pushing(given: Push) -> list[PushResult]:
            sent = torch.frombuffer(bytearray(given.gradient.view), dtype=_of(given.rounded_to))
            self.events.append(lambda to: to.replicas[index].push(sent))
            return push(given)

        def adopting(fetched: Any) -> None:
            found = stepper._model._spare.flat.tensor.clone()
            self.events.append(lambda to: to.replicas[index].adopt(found))
            take_over(fetched)

        client.push = pushing  # type: ignore[method-assign, assignment]
        stepper._take_over = adopting  # type: ignore[method-assign]


def _of(rounded_to: ElementType | None) -> torch.dtype:
    narrow = {ElementType.BFLOAT16: torch.bfloat16, ElementType.INT8: torch.uint8}
    return torch.float32 if rounded_to is None else narrow.get(rounded_to, torch.float32)


@pytest.mark.parametrize("case", CASES)
@settings(
    max_examples=3,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(machines=MACHINES, seed=st.integers(0, 1000))
def test_any_order_of_events_is_that_of_a_serial_loop(
    case: str, machines: Machines, seed: int
) -> None:
    local, rules = CASES[case]
    run = Recorded(local, machines, seed)
    wanted = run.serial(rules).parameters
    assert float((run.parameters.double() - wanted).norm() / wanted.norm()) < 1e-6
