"""A job's stages in a replica, and who asks which strategies they have."""

import ast
from collections.abc import Callable
from pathlib import Path

from disttrain.coordinator.protocol.fields import Position, Progress
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.parameter_server.client import Versions
from disttrain.replica import strategies
from disttrain.replica.training import Stages, Training

STRATEGIES_OWN = {"strategies", "optimizer.py"}


def asks(file: Path) -> bool:
    """Whether it looks into the strategy of a manifest."""
    nodes = ast.walk(ast.parse(file.read_text()))
    held = [node.value for node in nodes if isinstance(node, ast.Attribute)]
    return any(isinstance(one, ast.Attribute) and one.attr == "strategy" for one in held)


class StageTraining(Training):
    """A training that writes down what is asked of it."""

    def __init__(self, name: str, told: list[str], samples: int) -> None:
        self._name = name
        self._told = told
        self._samples = samples

    def made(self) -> Training:
        self._told.append(f"{self._name} is made")
        return self

    def begin(self, meanwhile: Callable[[], None]) -> None:
        del meanwhile
        self._told.append(f"{self._name} begins")

    def train_until(self, ends: Callable[[], bool]) -> None:
        while not ends():
            self._told.append(f"{self._name} steps")

    def drain(self) -> None:
        self._told.append(f"{self._name} drains")

    def release(self) -> None:
        self._told.append(f"{self._name} releases")

    def fetch_now(self) -> Versions:
        return ()

    def progress(self) -> Progress:
        return Progress(position=Position(lease=self._samples), samples=self._samples)

    def report(self) -> ReplicaReport:
        return ReplicaReport(progress=self.progress(), steps=1)


def test_a_stage_is_made_when_the_one_before_has_released_the_connection() -> None:
    told: list[str] = []
    first, second = StageTraining("first", told, 30), StageTraining("second", told, 12)
    stages = Stages([first.made, second.made])
    commands = iter(["", "next stage", "", "next stage", "end"])

    def ends() -> bool:
        command = next(commands)
        if command == "next stage":
            stages.next_stage()
        return command == "end"

    stages.begin(lambda: None)
    stages.train_until(ends)

    assert told == [
        "first is made",
        "first begins",
        "first steps",
        "first drains",
        "first releases",
        "second is made",
        "second begins",
        "second steps",
        "second steps",
    ]


def test_what_was_done_counts_over_all_stages() -> None:
    stages = Stages([StageTraining("first", [], 30).made, StageTraining("second", [], 12).made])
    stages.next_stage()

    assert stages.progress() == Progress(position=Position(lease=30), samples=42)
    assert (stages.report().steps, stages.report().progress.samples) == (2, 42)


def test_a_report_while_a_stage_ends_counts_nothing_twice() -> None:
    first, second = StageTraining("first", [], 30), StageTraining("second", [], 12)
    stages = Stages([first.made, second.made])
    report, moments = first.report, iter([stages.next_stage])

    def report_late() -> ReplicaReport:
        """The stage ends while another thread makes its report."""
        for end in moments:
            end()
        return report()

    first.report = report_late  # type: ignore[method-assign]
    told = stages.report()

    assert (told.steps, told.progress.samples) == (1, 30)
    assert stages.report().steps == 2


def test_nobody_but_the_registry_and_the_strategies_own_ask_for_the_strategy() -> None:
    folder = Path(strategies.__file__).parents[1]
    asking = {file.relative_to(folder).parts[0] for file in folder.rglob("*.py") if asks(file)}

    assert asking <= STRATEGIES_OWN
