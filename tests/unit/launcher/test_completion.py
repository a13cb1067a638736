"""Which runs are complete, and which manifests ask for more than they have reached."""

import json
from pathlib import Path
from typing import Any

import pytest

from builders.jobs import a_batch_job, a_job
from disttrain.launcher import completion
from disttrain.launcher.completion import Completed

ENDED: dict[str, Any] = {"phase": "Complete", "reason": "Epochs", "epochs": 4, "samples": 256}
GOLDEN = Path(__file__).parents[2] / "golden" / "v1"


def ended(**figures: Any) -> Completed:
    return Completed.model_validate(ENDED | figures)


def test_the_same_manifest_asks_for_nothing_however_the_run_ended() -> None:
    spec = a_batch_job("spec.stop={iterations: 100}").spec
    assert completion.is_final(ended(reason="Converged"), spec, spec)


@pytest.mark.parametrize(
    ("stop", "is_final"),
    [
        ("{epochs: 4}", True),
        ("{epochs: 5}", False),
        ("{epochs: 3}", True),
        ("{epochs: 5, samples: 256}", True),
        ("{epochs: 5, samples: 257}", False),
        ("{epochs: 5, targetMetric: {name: accuracy, atLeast: 0.9}}", True),
        ("{epochs: 5, targetMetric: {name: accuracy, atLeast: 0.99}}", False),
    ],
)
def test_another_manifest_may_ask_for_more(stop: str, *, is_final: bool) -> None:
    completed = ended(finalMeasures={"accuracy": 0.95, "torn": None})
    then, now = a_job("spec.seed=7").spec, a_job(f"spec.stop={stop}").spec
    assert completion.is_final(completed, then, now) is is_final
    assert completion.is_final(completed, None, now) is is_final


def test_iterations_are_those_of_the_batch_method() -> None:
    completed = ended(sandblaster={"iteration": 10})
    assert completion.is_final(completed, None, a_batch_job("spec.stop={iterations: 10}").spec)
    assert not completion.is_final(completed, None, a_batch_job("spec.stop={iterations: 11}").spec)


@pytest.mark.parametrize(
    "content", ["", "{", json.dumps(ENDED | {"phase": "Stopped"}), json.dumps({"reason": "Epochs"})]
)
def test_another_summary_is_of_no_complete_run(tmp_path: Path, content: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    assert completion.read(tmp_path / "summary.json") is None
    assert completion.read(tmp_path / "none") is None


@pytest.mark.parametrize("run", ["downpour", "sandblaster"])
def test_summaries_of_earlier_versions_are_read(run: str) -> None:
    found = completion.read(GOLDEN / run / "summary.json")
    assert found is not None
    assert found.samples > 0
