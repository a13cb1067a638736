"""Files that earlier versions left are read, and everything in them is found that they found."""

import json
from pathlib import Path
from typing import Any

import pytest

from disttrain.state.vector import parse
from golden import found

RUNS = sorted(path.parent for path in Path(found.__file__).parent.glob("v*/*/found.json"))
GONE = frozenset({"senders"})
"""Names that a later version keeps no more, on purpose: nothing read a shard's list of senders."""


def missing(expected: Any, now: Any, path: str = "") -> list[str]:
    """What was found and is not, or is otherwise; what is new besides it does not count."""
    if isinstance(expected, dict) and isinstance(now, dict):
        kept = {name: value for name, value in expected.items() if name not in GONE}
        return [
            text
            for name, value in kept.items()
            for text in missing(
                _renamed(value) if name == "vector" and isinstance(value, int) else value,
                now.get(_renamed(name), "nothing"),
                f"{path}/{name}",
            )
        ]
    if isinstance(expected, list) and isinstance(now, list) and len(expected) == len(now):
        pairs = enumerate(zip(expected, now, strict=True))
        return [text for at, pair in pairs for text in missing(*pair, f"{path}/{at}")]
    if isinstance(expected, str) and isinstance(now, str) and expected[:1] in {"[", "{"}:
        # A course is JSON in a text.
        return missing(json.loads(expected), json.loads(now), path)
    return [] if now in (expected, _of_text(expected)) else [f"{path}: {expected}, now {now}"]


def _of_text(expected: Any) -> Any:
    return _renamed(expected) if isinstance(expected, str) else expected


def _renamed(name: Any) -> Any:
    """Vectors are named otherwise since there is a placement; everything else is not."""
    try:
        return str(parse(name))
    except ValueError:
        return name


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.parent.name}-{run.name}")
def test_all_that_was_in_a_golden_run_is_found_again(run: Path, tmp_path: Path) -> None:
    expected = json.loads((run / found.FOUND).read_text())
    now = json.loads(json.dumps(found.of_run(run, tmp_path)))

    assert missing(expected, now) == []


@pytest.mark.parametrize("version", sorted({run.parent for run in RUNS}), ids=lambda v: v.name)
def test_the_golden_runs_hold_what_they_are_there_for(version: Path) -> None:
    """Losses, several kinds of state, and journals with decisions: else they would prove little."""
    runs = (run for run in RUNS if run.parent == version)
    held = {run.name: json.loads((run / found.FOUND).read_text()) for run in runs}

    acknowledged = held["downpour"]["acknowledged"].values()
    assert any(count["lost"] for counts in acknowledged for count in counts.values())
    assert {"sum_of_squares"} <= held["downpour"]["restored"]["0 of 1"].keys()
    assert {"momentum"} <= held["downpour_in_objects"]["restored"]["0 of 1"].keys()
    assert {"s0", "y0"} <= held["sandblaster"]["restored"]["0 of 1"].keys()
    assert held["downpour_under_way"]["journal"]["decisions"] > 20
    assert held["sandblaster_under_way"]["journal"]["decisions"] > 200
