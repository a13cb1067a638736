"""What a checkpoint says about a batch method's decisions, one for each evaluation."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from disttrain.checkpoint import names
from disttrain.coordinator.journal import state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.status import status
from disttrain.coordinator.strategies.batch import status as batch_status
from disttrain.sandblaster.scheme import Decision

_HEAD = ("evaluation", "iteration", "step", "loss", "slope", "decision")


def read(checkpoint: Path) -> State | None:
    """The coordinator's part of a checkpoint; None if it cannot be read."""
    try:
        return state.from_json((checkpoint / names.COORDINATOR).read_bytes())
    except (OSError, ValidationError):
        return None


def rows(found: State | None) -> list[tuple[str, ...]]:
    """A table with its head; empty for other strategies."""
    if found is None or found.batch is None:
        return []
    decided = (_fields(each) for each in found.batch.course.method.decisions)
    return [_HEAD, *(tuple(_cell(*each) for each in fields.items()) for fields in decided)]


def with_decisions(described: str, found: State | None) -> str:
    batch = None if found is None else batch_status.batch(found)
    if found is None or batch is None:
        return described
    decided = () if found.batch is None else found.batch.course.method.decisions
    decisions = [_fields(each) for each in decided]
    whole = {**json.loads(described), "sandblaster": {**batch, "decisions": decisions}}
    return json.dumps(status.finite(whole), indent=2)


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.10g}" if name == "loss" else f"{value:.4g}"
    return str(value)


def _fields(each: Decision) -> dict[str, Any]:
    return {
        "evaluation": each.evaluation,
        "iteration": each.iteration,
        "step": each.step,
        "loss": each.loss,
        "slope": each.slope,
        "verdict": each.verdict.value,
    }
