"""How a shard's loop waits: what the coordinator wants is not left lying."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from disttrain.coordinator.protocol.control import Received
from disttrain.parameter_server.server import ShardProcess
from disttrain.telemetry.exporter import Health
from disttrain.transport.interface import Endpoint

LOOKS = 5


class Coordinator:
    """Has something to say at each look, and at last that this is the end."""

    channel: Any = object()
    latest = SimpleNamespace(replicas=None)

    def __init__(self, runner: SimpleNamespace) -> None:
        self.looks = 0
        self._runner = runner

    def poll(self, report: object, wait: float = 0.0) -> Received:
        del report, wait
        self.looks += 1
        self._runner.is_ended = self.looks == LOOKS
        return Received()


class Transport:
    """Something has come from the coordinator whenever it is asked."""

    def __init__(self) -> None:
        self.waits = 0

    def now(self) -> float:
        return 1000.0 + self.waits

    def wait(self, endpoints: Sequence[Endpoint], timeout: float) -> list[Endpoint]:
        assert timeout > 0
        self.waits += 1
        return [endpoints[-1]]


class CountingHealth(Health):
    """How often the loop went on, and its limits."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float | None] = []
        self.iterations = 0

    def begin(self, limit_seconds: float) -> None:
        self.limits.append(limit_seconds)

    def iterated(self) -> None:
        self.iterations += 1

    def end(self) -> None:
        self.limits.append(None)


def test_what_the_coordinator_says_is_heard_at_once_and_each_iteration_shows_over_http() -> None:
    health = CountingHealth()
    runner = SimpleNamespace(is_ended=False, is_writing=False, finished=lambda: None)
    control, transport = Coordinator(runner), Transport()
    advanced: list[None] = []
    stage = SimpleNamespace(advance=lambda: advanced.append(None))
    process = ShardProcess(
        transport=cast(Any, transport),
        listener=cast(Any, object()),
        control=cast(Any, control),
        serving=cast(Any, SimpleNamespace(serve_waiting=lambda: 0)),
        runner=cast(Any, runner),
        reporter=cast(Any, SimpleNamespace(doing="", shard=SimpleNamespace(stage=stage))),
        metrics=cast(Any, SimpleNamespace(health=health)),
    )

    process.run(patience_seconds=60.0)

    assert (control.looks, transport.waits) == (LOOKS, LOOKS)
    assert health.limits == [60.0, None]
    assert health.iterations == len(advanced) == LOOKS
