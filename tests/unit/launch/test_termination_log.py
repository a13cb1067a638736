"""What a process leaves about its end."""

import json

from disttrain.launch import termination_log
from disttrain.launch.exit_code import ExitCode


def outcome(code: ExitCode, **summary: object) -> dict[str, object]:
    found: dict[str, object] = json.loads(termination_log.outcome(code, summary))
    return found


def test_a_decided_end_is_told_as_the_summary_has_it() -> None:
    found = outcome(
        ExitCode.COMPLETE,
        phase="Complete",
        reason="Epochs",
        message="",
        samples=20,
        finalMeasures={"accuracy": 0.9},
        latestMeasures={"accuracy": 0.8},
    )
    assert found == {
        "phase": "Complete",
        "reason": "Epochs",
        "message": "",
        "samples": 20,
        "measures": {"accuracy": 0.9},
    }


def test_a_full_disk_has_no_summary_but_an_exit_code() -> None:
    assert outcome(ExitCode.FAILED)["phase"] == "Failed"


def test_a_coordinator_that_was_told_to_end_has_not_decided_anything() -> None:
    found = outcome(ExitCode.INTERRUPTED, phase="Running", samples=7)
    assert (found["phase"], found["reason"]) == ("Stopped", "Stopped")


def test_what_is_too_long_keeps_its_beginning_and_its_end() -> None:
    message = "begin " + "ä" * 10_000 + " end"
    text = termination_log.text(message)
    assert len(text) <= termination_log.MOST_BYTES
    assert text.startswith(b"begin ")
    assert text.endswith(b" end")
    many = {f"measure-{number}": float(number) for number in range(1000)}
    content = termination_log.outcome(
        ExitCode.FAILED, {"phase": "Failed", "message": message, "finalMeasures": many}
    )
    assert len(content) <= termination_log.MOST_BYTES
    assert json.loads(content)["phase"] == "Failed"


def test_an_error_of_the_coordinator_itself_fails_the_job() -> None:
    found = json.loads(termination_log.failed("WrongJournal", "another job's"))
    assert found == {
        "phase": "Failed",
        "reason": "WrongJournal",
        "message": "another job's",
        "samples": 0,
        "measures": {},
    }
