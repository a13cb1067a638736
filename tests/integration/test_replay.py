"""`disttrain replay` reproduces asynchronous runs bit for bit."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from builders.at_night import others_at_night
from builders.commands import disttrain
from builders.runs import RunningJob, has_restarted
from disttrain.errors import FinalError
from disttrain.parameter_server import records
from disttrain.replay import outcome
from disttrain.replica import ledger as replica_ledger
from disttrain.transport.shared_memory import SharedMemoryTransport

pytestmark = pytest.mark.landing

EXAMPLES = Path(__file__).parents[2] / "examples"


def replayed(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Exit code, findings and error of the command."""
    answer = disttrain("replay", folder, "--json", *options)
    return answer.code, json.loads(answer.out) if answer.out else {}, answer.err


def run(output: Path, *assignments: str) -> Path:
    """A small asynchronous run of the digits, recorded."""
    options = [f"--set={each}" for each in ("spec.record=true", *assignments)]
    answer = disttrain("run", EXAMPLES / "digits/job-small.yaml", *options, "--output", output)
    assert answer.code == 0, answer
    return output


def usual_loss_at_the_end(folder: Path) -> float:
    """The median of each replica's last quarter of losses.

    The loss at one moment says little of an asynchronous run: it jumps when a replica that was kept
    from its core pushes everything it had in flight.
    """
    last: list[np.ndarray] = []
    for file in (folder / "ledger").glob("replica-*.bin"):
        records = replica_ledger.read(file)
        losses = records["loss"][records["kind"] == replica_ledger.Kind.COMPUTED]
        last.append(losses[-len(losses) // 4 :])
    return float(np.median(np.concatenate(last)))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("run") / "output")


def test_an_asynchronous_run_is_reproduced_bit_for_bit(recorded: Path) -> None:
    code, found, error = replayed(recorded)

    assert code == 0, error
    assert found["differences"] == []
    assert found["values"]["first_difference"] == ""
    assert found["losses_compared"] == found["versions"][0] > 80
    assert sum(row["pushes"] for row in found["delays"]) == found["versions"][0]


@pytest.mark.parametrize("local_rate", others_at_night("null", "0"))
def test_momentum_local_steps_and_several_pushes_are_reproduced(
    tmp_path: Path, local_rate: str
) -> None:
    falling = "{warmup: {epochs: 1.5}, cosine: {finalFraction: 0.1}}"
    folder = run(
        tmp_path / "output",
        "spec.strategy.downpour.optimizer="
        f"{{momentum: {{learningRate: 0.01, clipNorm: 1.0, schedule: {falling}}}}}",
        f"spec.strategy.downpour.localLearningRate={local_rate}",
        "spec.strategy.downpour.pushEvery=2",
        "spec.strategy.downpour.fetchEvery=3",
        "spec.strategy.downpour.maxInFlight=2",
    )

    code, found, error = replayed(folder)

    assert (code, found.get("differences")) == (0, []), error


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("rule", "epochs"),
    [
        ("optimizer: {sgd: {learningRate: 0.05}}", 40),
        # It divides by a staleness of about 7, but a push that meets none moves by the whole rate.
        ("optimizer: {sgd: {learningRate: 0.1}}, staleness: {scaleRate: {}}", 60),
        (
            "optimizer: {momentum: {learningRate: 0.02, momentum: 0.7}}, staleness: {predict: {}}",
            40,
        ),
        ("optimizer: {adamw: {learningRate: 0.003}}", 40),
        ("optimizer: {rmsprop: {learningRate: 0.001}}", 40),
    ],
)
def test_rules_train_as_well_as_sgd_and_are_reproduced(
    tmp_path: Path, rule: str, epochs: int
) -> None:
    folder = run(
        tmp_path / "output",
        f"spec.strategy.downpour={{{rule}}}",
        f"spec.stop.epochs={epochs}",
        "spec.replicas.count=3",
    )

    code, found, error = replayed(folder)

    assert (code, found.get("differences")) == (0, []), error
    assert found["values"]["first_difference"] == ""
    assert max(row["staleness_p50"] for row in found["delays"]) > 1
    assert usual_loss_at_the_end(folder) < 0.6


@pytest.mark.nightly
def test_half_of_the_bits_in_computing_and_on_the_way_are_reproduced(tmp_path: Path) -> None:
    downpour = "{optimizer: {adamw: {learningRate: 0.003}}, precision: bfloat16}"
    folder = run(
        tmp_path / "output",
        f"spec.strategy.downpour={downpour}",
        "spec.strategy.downpour.pushAs=bfloat16",
        "spec.strategy.downpour.fetchAs=bfloat16",
        "spec.stop.epochs=10",
        "spec.replicas.count=3",
    )

    code, found, error = replayed(folder)

    assert (code, found.get("differences")) == (0, []), error
    assert found["values"]["first_difference"] == ""
    assert disttrain("audit", folder).code == 0


def test_parameter_groups_and_local_steps_are_reproduced(tmp_path: Path) -> None:
    manifest = yaml.safe_load((EXAMPLES / "digits/job-small.yaml").read_text())
    spec = manifest["spec"]
    spec["task"] = {"entrypoint": "proving:Proving", "arguments": {"groups": True}}
    rule = {"learningRate": 0.01, "weightDecay": 0.01}
    spec["strategy"] = {"downpour": {"fetchEvery": 3, "optimizer": {"momentum": rule}}}
    assignments = ["spec.record=true"]
    with RunningJob(tmp_path, assignments, yaml.safe_dump(manifest)) as job:
        assert job.wait() == 0

    code, found, error = replayed(job.output)

    assert (code, found.get("differences")) == (0, []), error
    assert found["values"]["first_difference"] == ""


def test_running_statistics_and_dropout_are_reproduced_over_tcp(tmp_path: Path) -> None:
    assignments = [
        "spec.record=true",
        "spec.transport=tcp",
        "spec.task.entrypoint=normalised:Normalised",
        "spec.strategy.downpour={optimizer: {adagrad: {learningRate: 0.05}}}",
        "spec.batchSize=16",
        "spec.stop.epochs=5",
        "spec.evaluation={everyEpochs: 1}",
    ]
    with RunningJob(tmp_path, assignments) as job:
        assert job.wait() == 0

        code, found, error = replayed(job.output)

    assert (code, found.get("differences")) == (0, []), error
    assert found["losses_compared"] == 200


def test_a_loss_that_was_another_one_is_named(recorded: Path) -> None:
    file = replica_ledger.path_of(recorded / "ledger", 0, 1)
    content = file.read_bytes()
    records = replica_ledger.read(file).copy()
    third = np.flatnonzero(records["kind"] == replica_ledger.Kind.COMPUTED)[2]
    records["loss"][third] += 1e-6
    try:
        file.write_bytes(records.tobytes())
        code, found, _ = replayed(recorded)
    finally:
        file.write_bytes(content)

    assert code == 1
    assert len(found["differences"]) == 1
    assert "replica-0 (incarnation 1) step 2" in found["differences"][0]


def test_a_replay_can_stop_early_and_compare_with_serial_training(recorded: Path) -> None:
    code, found, error = replayed(recorded, "--to-update", "20", "--serial")

    assert code == 0, error
    assert found["versions"] == [20, 20]
    assert found["measured"]["loss"] > 0
    assert found["serial"]["loss"] > 0


def test_the_chunks_are_those_of_the_run_whatever_this_version_would_cut(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SharedMemoryTransport, "chunk_bytes", 1 << 12)

    assert outcome.replay(recorded, to_update=20).differences == ()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"chunk_bytes": 1 << 12}, "chunk .* which is next in the log of shard-"),
        ({"torch": "1.0"}, "recorded with PyTorch 1.0 and its"),
        ({"cpu": "ABACUS"}, "its ABACUS kernels"),
        ({"torch": None}, "does not tell how the run was recorded"),
    ],
)
def test_a_run_recorded_under_another_environment_is_refused(
    recorded: Path, change: dict[str, object], reason: str
) -> None:
    file = recorded / "ledger" / records.ENVIRONMENT_FILE
    content = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(content) | change))
        with pytest.raises(FinalError, match=reason):
            outcome.replay(recorded, to_update=20)
    finally:
        file.write_text(content)


def test_a_run_without_a_record_is_refused(recorded: Path, tmp_path: Path) -> None:
    job = yaml.safe_load((recorded / "job.yaml").read_text())
    job["spec"]["record"] = False
    (tmp_path / "ledger").mkdir()
    (tmp_path / "job.yaml").write_text(json.dumps(job))

    code, _, error = replayed(tmp_path)

    assert code == 1
    assert "spec.record=true" in error


def test_a_run_whose_shard_died_is_refused(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    arguments = f"spec.task.arguments={{gate: {gate}}}"
    with RunningJob(tmp_path, ["spec.record=true", arguments]) as job:
        job.wait_until(lambda status: status.get("checkpoint", 0) and status["samples"] > 0)
        job.kill("shard-0")
        job.wait_until(has_restarted("shard"))
        gate.touch()
        assert job.wait() == 0
        job.assert_promises_held()

        code, _, error = replayed(job.output)

    assert code == 1
    assert "shard-0 has 2 incarnations" in error
