"""What the launcher takes from a status of the coordinator."""

import json
from pathlib import Path

import pytest

from disttrain.coordinator.phases import IncarnationState, Phase
from disttrain.coordinator.protocol import messages
from disttrain.job import run_status
from disttrain.job.run_status import RunStatus
from disttrain.launch.outcome import Result
from disttrain.launcher.coordinator_link import LatestStatus


def a_member(
    name: str, pid: int, state: IncarnationState = IncarnationState.LIVE
) -> dict[str, object]:
    return {"name": name, "pid": pid, "state": state, "reason": "silent", "samples": 3}


@pytest.mark.parametrize("phase", list(Phase))
def test_the_phases_that_end_a_job_are_known(phase: Phase) -> None:
    assert (phase.value in set(Result)) is phase.ended


def test_the_dead_are_found_among_the_members() -> None:
    members = [a_member("shard-0", 7), a_member("replica-0", 8, IncarnationState.DEAD)]
    found = RunStatus.model_validate({"phase": "Running", "members": members})
    (dead,) = (each for each in found.members if each.is_dead)
    assert (dead.name, dead.pid, dead.reason) == ("replica-0", 8, "silent")
    assert found.joined == {("shard-0", 7), ("replica-0", 8)}


def test_a_later_incarnation_has_not_joined_because_an_earlier_one_had(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    file.write_text(json.dumps({"phase": "Stopped", "members": [a_member("shard-0", 7)]}))
    found = run_status.read(file)
    assert found is not None
    assert ("shard-0", 7) in found.joined
    assert ("shard-0", 9) not in found.joined


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_file_that_is_no_status_says_nothing(tmp_path: Path, text: str) -> None:
    file = tmp_path / "status.json"
    assert run_status.read(file) is None
    file.write_text(text)
    assert run_status.read(file) is None


@pytest.mark.parametrize(
    "status", [{}, {"phase": None}, {"phase": "Running", "members": [], "limit": None}]
)
def test_an_answer_that_cannot_be_read_changes_nothing(status: dict[str, object]) -> None:
    latest = LatestStatus()
    assert latest.take(messages.StatusReply(status=status)) == RunStatus(phase="")
    members = [a_member("shard-0", 7)]
    said = latest.take(messages.StatusReply(status={"phase": "Running", "members": members}))
    assert said.joined == {("shard-0", 7)}

    assert latest.take(messages.StatusReply(status=status)) is said
    assert latest.take(messages.Acknowledged()) is said
