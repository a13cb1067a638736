"""`disttrain audit` on the logs of real runs: clean, with deaths, and tampered with."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.commands import disttrain
from builders.runs import RunningJob
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.replica import ledger as replica_ledger


def audited(folder: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and findings of the command."""
    answer = disttrain("audit", folder, "--json")
    return answer.code, json.loads(answer.out) if answer.out else {}


def standings(found: dict[str, Any]) -> dict[str, str]:
    return {
        finding["promise"][:2].strip(". "): finding["standing"] for finding in found["findings"]
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A recorded run in which shard 0 and replica 1 were killed."""
    folder = tmp_path_factory.mktemp("run")
    hurry = folder / "hurry"
    assignments = ["spec.record=true", "spec.stop.epochs=6", "spec.checkpoint.everySeconds=0.5"]
    assignments += [f"spec.task.arguments={{step_seconds: 0.1, hurry: {hurry}}}"]
    with RunningJob(folder, assignments) as job:
        job.wait_until(lambda status: status.get("checkpoint", 0) and status["samples"] > 0)
        job.kill("shard-0")
        job.wait_until(lambda _: (job.output / "ledger" / "shard-0.i2.bin").exists())
        job.kill("replica-1")
        job.wait_until(lambda _: (job.output / "ledger" / "replica-1.i2.bin").exists())
        hurry.touch()
        assert job.wait() == 0
        yield job.output


@pytest.fixture
def tampered(finished: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def test_a_run_with_deaths_keeps_its_promises(finished: Path) -> None:
    code, found = audited(finished)

    assert (code, found["held"]) == (0, True), found
    assert standings(found)["3"] == "not applicable"


def test_the_timeline_of_a_run_is_drawn(finished: Path, tmp_path: Path) -> None:
    picture = tmp_path / "timeline.svg"
    shown = disttrain("timeline", finished, "--plot", picture, "--updates", "30", "--json")

    assert shown.code == 0
    found = json.loads(shown.out)
    assert len(found) == 30
    assert {each["replica"] for each in found} <= {0, 1}
    assert all(each["read_seconds"] < each["applied_seconds"] for each in found)
    assert picture.read_text().count('rx="3"') == 30


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--shard", "7"), "no log of shard 7; there are 0, 1"),
        (("--after", "1000000"), "1000000: the log ends with update"),
        (("--plot", "none/there.svg"), "none/there.svg: No such file or directory"),
    ],
)
def test_a_timeline_that_cannot_be_shown_says_why(
    finished: Path, arguments: tuple[str, ...], remedy: str
) -> None:
    shown = disttrain("timeline", finished, *arguments)

    assert shown.code == 2
    assert remedy in shown.err


def test_a_record_taken_out_of_a_shards_log_is_found(tampered: Path) -> None:
    file = shard_ledger.path_of(tampered / "ledger", 1, 1)
    records = shard_ledger.read(file)
    place = np.flatnonzero(records["kind"] == shard_ledger.Kind.PUSHED)[3]
    file.write_bytes(np.delete(records, place).tobytes())

    code, found = audited(tampered)

    assert code == 1
    assert {standings(found)["1"], standings(found)["4"]} == {"violated"}


def test_a_record_that_stands_twice_in_a_shards_log_is_found(tampered: Path) -> None:
    file = shard_ledger.path_of(tampered / "ledger", 1, 1)
    records = shard_ledger.read(file)
    place = np.flatnonzero(records["kind"] == shard_ledger.Kind.PUSHED)[3]
    file.write_bytes(np.insert(records, place, records[place]).tobytes())

    code, found = audited(tampered)

    assert (code, standings(found)["2"]) == (1, "violated")


def test_an_invented_acknowledgement_is_found(tampered: Path) -> None:
    file = replica_ledger.path_of(tampered / "ledger", 0, 1)
    records = replica_ledger.read(file).copy()
    last = np.flatnonzero(records["kind"] == replica_ledger.Kind.ACKNOWLEDGED)[-1]
    records["number"][last] += 1000
    file.write_bytes(records.tobytes())

    code, found = audited(tampered)

    assert (code, standings(found)["1"]) == (1, "violated")


@pytest.mark.parametrize(
    ("field", "promise"), [("updatesLost", "1"), ("samples", "sa"), ("samplesRepeated", "sa")]
)
def test_a_wrong_number_in_the_summary_is_found(tampered: Path, field: str, promise: str) -> None:
    file = tampered / "summary.json"
    summary = json.loads(file.read_text())
    summary[field] += 1000
    file.write_text(json.dumps(summary))

    code, found = audited(tampered)

    assert (code, standings(found)[promise]) == (1, "violated")


def test_a_flipped_bit_in_a_checkpoint_is_found(tampered: Path) -> None:
    file = next((tampered / "checkpoints").glob("*/part-00000.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)

    code, found = audited(tampered)

    assert (code, standings(found)["6"]) == (1, "violated")


def test_a_folder_that_holds_no_run_is_refused(tmp_path: Path) -> None:
    assert audited(tmp_path) == (2, {})
