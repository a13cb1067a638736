"""What `run` and `status` show of a job."""

import json
import os
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console
from typer.testing import CliRunner

from disttrain.cli import status, wording
from disttrain.cli.app import app
from disttrain.cli.display import LiveDisplay
from disttrain.cli.live import PlainDisplay
from disttrain.job import run_status
from disttrain.job.run_status import RunStatus
from disttrain.job.status import TrainingStatus
from disttrain.job.stop import TargetMetric
from disttrain.launch.run_folder import RunFolder
from disttrain.launcher.supervision import Process, State

GOLDEN: Final = Path(__file__).parents[2] / "golden"
TRAINING: dict[str, Any] = {
    "samples": 12345,
    "samplesPerSecond": 5400.4,
    "epoch": 2.5,
    "loss": 0.25,
    "progressPercent": 40,
    "estimatedRemainingSeconds": 75.2,
    "metrics": {"accuracy": 0.9512},
    "stalenessP50": 2,
    "stalenessP99": 7,
}
STATUS: dict[str, Any] = {
    "phase": "Running",
    "training": TRAINING,
    "limit": "Push: the replicas wait 40% of their time for it.",
    "members": [
        {
            "name": "shard-0",
            "incarnation": 2,
            "state": "live",
            "activity": "serving",
            "pid": 71,
            "metricsAddress": "127.0.0.1:9001",
            "version": 1234,
        },
        {"name": "replica-0", "incarnation": 1, "state": "live", "pid": 72, "samples": 6000},
    ],
    "a later field": 1,
}


def a_run(folder: Path, **changes: object) -> RunFolder:
    run = RunFolder(folder)
    run.prepare()
    run.status.write_text(json.dumps(STATUS | changes))
    return run


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert wording.duration(seconds) == text


def test_an_incarnation_after_a_resume_is_told_by_both_numbers_and_its_samples_are_its_own(
    tmp_path: Path,
) -> None:
    member = {"state": "live", "samples": 6000}
    incarnations = {"replica-0": 1001, "replica-1": 2003, "replica-2": 2, "replica-3": 1}
    members = [
        member | {"name": name, "incarnation": incarnation}
        for name, incarnation in incarnations.items()
    ]
    a_run(tmp_path, members=members)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()
    rows = [" ".join(line.split()) for line in shown if line.startswith("replica-")]
    assert rows == [
        "replica-0 ended 1 (resume 1) 6,000 samples in this incarnation",
        "replica-1 ended 3 (resume 2) 6,000 samples in this incarnation",
        "replica-2 ended 2 6,000 samples in this incarnation",
        "replica-3 ended 1 6,000 samples",
    ]


def test_a_measure_that_is_no_number_is_shown() -> None:
    training = TRAINING | {"metrics": {"accuracy": None, "f1": 0.5}}
    status = RunStatus.model_validate(STATUS | {"training": training})
    assert " · test accuracy nan, f1 0.5 · " in wording.progress_line(status)


def test_it_is_said_how_old_measures_are() -> None:
    training = TRAINING | {"metrics": {"accuracy": 0.5}, "metricsSamples": 12000}
    status = RunStatus.model_validate(STATUS | {"training": training})
    assert " · test accuracy 0.5 at 12,000 samples · " in wording.progress_line(status)
    nothing = RunStatus.model_validate(STATUS | {"training": {"metricsSamples": 12000}})
    assert "test" not in wording.progress_line(nothing)


def test_a_warning_of_a_measure_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = TRAINING | {"warning": "the measure accuracy is no number"}
    run = a_run(tmp_path, training=training)
    display = PlainDisplay(lambda: run_status.read(run.status))
    for phase in ("Running", "Draining", "Complete"):
        a_run(tmp_path, phase=phase, training=training)
        display.tick([])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "warning: the measure accuracy is no number"
    assert len(said) == 4
    assert sum(line.startswith("warning: ") for line in said) == 1
    console = Console(force_terminal=True, width=160, record=True, color_system=None)
    with LiveDisplay(lambda: run_status.read(run.status), console) as live:
        live.tick([])
    assert "warning: the measure accuracy is no number" in console.export_text()
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()
    assert "warning: the measure accuracy is no number" in shown


def test_lines_for_pipes_come_with_news_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path)
    display = PlainDisplay(lambda: run_status.read(run.status))
    for _ in range(3):
        display.tick([])
    assert capsys.readouterr().out == (
        "running · 40% · epoch 2.50 · 12,345 samples · 5,400 samples/s · training loss 0.25 · "
        "test accuracy 0.9512 · staleness p50 2 p99 7 updates · 1 min 15 s left\n"
    )
    a_run(tmp_path, phase="Draining")
    display.event("replica-0: killed by SIGKILL")
    display.tick([])
    event, line = capsys.readouterr().out.splitlines()
    assert event == "replica-0: killed by SIGKILL"
    assert line.startswith("draining · ")


def test_an_event_is_one_line_that_steers_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    event, shown = (
        "replica-0: \x1b[2J\nValueError: \ud800",
        r"replica-0: \x1b[2J\nValueError: \ud800",
    )
    PlainDisplay(lambda: None).event(event)
    assert capsys.readouterr().out == f"{shown}\n"
    console = Console(force_terminal=True, width=120, record=True, color_system=None)
    with LiveDisplay(lambda: None, console) as display:
        display.event(event)
        display.tick([])
    assert shown in console.export_text()


BATCH_METHOD = {"iteration": 3, "evaluations": 5, "gradientNorm": 0.02}


def test_a_batch_method_has_an_objective_commands_and_an_upper_bound_of_time(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, sandblaster=BATCH_METHOD)
    console = Console(force_terminal=True, width=160, record=True, color_system=None)
    with LiveDisplay(lambda: run_status.read(run.status), console) as display:
        display.tick([Process("shard-0", State.RUNNING)])
    shown = console.export_text()
    for text in ("objective 0.25", "at most 1 min 15 s left", "1,234 commands"):
        assert text in shown
    assert "loss" not in shown


def test_a_complete_job_shows_what_its_model_was_measured_with_and_its_mean_rate() -> None:
    final = {"phase": "Complete", "finalLoss": 0.218, "finalMeasures": {"accuracy": 0.9547}}
    status = RunStatus.model_validate(STATUS | final | {"seconds": 5.0})
    line = wording.progress_line(status)
    assert "· 12,345 samples · mean 2,469 samples/s · test loss 0.218, accuracy 0.9547 ·" in line


@pytest.mark.parametrize(
    ("target", "found", "said"),
    [
        (TargetMetric(name="accuracy", at_least=0.6), 0.354, "accuracy is 0.354, not at least 0.6"),
        (TargetMetric(name="accuracy", at_most=0.1), 0.354, "accuracy is 0.354, not at most 0.1"),
        (TargetMetric(name="accuracy", at_least=0.3), 0.354, ""),
        (TargetMetric(name="accuracy", at_most=0.4), 0.354, ""),
        (TargetMetric(name="accuracy", at_least=0.6), None, ""),
        (TargetMetric(name="error", at_most=0.1), 0.354, ""),
        (None, 0.354, ""),
    ],
)
def test_a_target_that_the_model_misses_is_told(
    target: TargetMetric | None, found: float | None, said: str
) -> None:
    told = wording.missed(target, {"accuracy": found})
    assert told == (said and f"spec.stop.targetMetric was not met: {said}")


def test_who_does_not_train_has_no_rate() -> None:
    status = RunStatus.model_validate(STATUS | {"phase": "Evaluating"})
    assert "samples/s" not in wording.progress_line(status)


def test_a_target_may_end_a_job_before_its_limits() -> None:
    status = RunStatus.model_validate(STATUS | {"hasTarget": True})
    assert wording.progress_line(status).endswith(" · at most 1 min 15 s left")


@pytest.mark.parametrize(
    ("reason", "message", "text"),
    [
        ("Converged", "the loss changed little", "Complete (Converged: the loss changed little)"),
        ("Iterations", "", "Complete (Iterations)"),
        ("", "", "Complete"),
    ],
)
def test_an_end_says_why(tmp_path: Path, reason: str, message: str, text: str) -> None:
    assert wording.ending("Complete", reason, message) == text
    a_run(tmp_path, phase="Complete", reason=reason, message=message)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()
    assert (text in shown) == bool(reason)


@pytest.mark.parametrize(("percent", "times"), [(None, 0), (0, 2)])
def test_a_percentage_is_shown_where_something_limits_the_job(
    percent: int | None, times: int
) -> None:
    found = RunStatus(phase="Running", training=TrainingStatus(progress_percent=percent))
    console = Console(record=True, width=120)
    with LiveDisplay(lambda: found, console) as display:
        display.tick([])
    assert console.export_text().count(" 0% ") == times


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, ""), (1, " · 1 failed checkpoint"), (1200, " · 1,200 failed checkpoints")],
)
def test_checkpoints_that_failed_are_counted(number: int, text: str) -> None:
    line = wording.progress_line(RunStatus(phase="Running", checkpoint_failures=number))
    assert line == f"running · epoch 0.00 · 0 samples · 0 samples/s{text}"


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"updatesLost": 0}, ""),
        ({"updatesLost": 0, "updatesLostIsExact": False}, ""),
        ({"updatesLost": 1, "updatesLostIsExact": True}, " · 1 update lost"),
        ({"updatesLost": 1200, "updatesLostIsExact": True}, " · 1,200 updates lost"),
        ({"updatesLost": 1200, "updatesLostIsExact": False}, " · at least 1,200 updates lost"),
    ],
)
def test_updates_that_were_lost_are_counted_as_well_as_they_can_be(
    tmp_path: Path, figures: dict[str, object], text: str
) -> None:
    a_run(tmp_path, **figures)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()[0]
    assert ("lost" in shown) == bool(text)
    assert text in shown


@pytest.mark.parametrize(
    ("message", "text"), [("", "Stopped"), ("the disk is full", "Stopped (the disk is full)")]
)
def test_a_stop_is_said_once(message: str, text: str) -> None:
    assert wording.ending("Stopped", "Stopped", message) == text


@pytest.mark.parametrize(
    ("of", "shown"),
    [
        (
            "v1/downpour",
            "complete · 100% · epoch 4.00 · 256 samples · mean 103 samples/s · test loss ",
        ),
        ("v2/sandblaster", "complete · 100% · iteration 6, gradient 0.002 · epoch 7.50 · 1,800 "),
    ],
)
def test_files_of_earlier_versions_are_shown(of: str, shown: str) -> None:
    status = run_status.read(GOLDEN / of / "status.json")
    assert status is not None
    line = wording.progress_line(status)
    assert line.startswith(shown)
    assert " · test loss " in line
    assert " · staleness p50 " in line


BEFORE: dict[str, Any] = {"phase": "Running", "progress": 0.5}
"""As earlier versions wrote it."""


@pytest.mark.parametrize(
    "spoiled",
    [
        {"progress": None},
        {"progress": "half"},
        {"progress": float("inf")},
        {"staleness": 5},
        {"latestMeasures": [1]},
        {"checkpointWarning": 5},
    ],
)
def test_files_that_no_version_wrote_are_no_status(
    tmp_path: Path, spoiled: dict[str, object]
) -> None:
    run = a_run(tmp_path)
    run.status.write_text(json.dumps(BEFORE | spoiled))
    assert run_status.read(run.status) is None


def test_of_earlier_files_too_many_measures_and_words_are_cut(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    warnings = {"checkpointWarning": "no room", "measureWarning": "nan" * 1000}
    measures = {f"measure{number}": 0.5 for number in range(60)}
    run.status.write_text(json.dumps(BEFORE | warnings | {"latestMeasures": measures}))
    status = run_status.read(run.status)
    assert status is not None
    assert len(status.training.metrics) == 50
    (warning,) = status.warnings
    assert warning.startswith("no room; nannan")
    assert len(warning) == 1024


def test_no_line_before_there_is_a_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    display = PlainDisplay(lambda: run_status.read(RunFolder(tmp_path).status))
    display.tick([])
    (tmp_path / "status.json").write_text('{"phase": ')
    display.tick([])
    assert capsys.readouterr().out == ""


def test_what_the_manifest_had_better_say_is_printed_once_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run(tmp_path, sandblaster={**BATCH_METHOD, "warning": "too few groups"})
    lines = PlainDisplay(lambda: run_status.read(run.status))
    for _ in range(3):
        lines.tick([])
    assert capsys.readouterr().out.count("warning: too few groups\n") == 1

    console = Console(force_terminal=True, width=120, record=True, color_system=None)
    with LiveDisplay(lambda: run_status.read(run.status), console) as display:
        display.tick([])
    assert "warning: too few groups" in console.export_text()


def test_a_lost_shard_is_named_in_red(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=120, record=True, color_system="standard")
    run = a_run(tmp_path, members=[{"name": "shard-0", "incarnation": 2, "state": "dead"}])
    with LiveDisplay(lambda: run_status.read(run.status), console) as display:
        display.tick([Process("shard-0", State.RUNNING)])
    assert "\x1b[31mdead" in console.export_text(styles=True)


def test_a_terminal_shows_processes_figures_and_events(tmp_path: Path) -> None:
    console = Console(force_terminal=True, width=120, record=True, color_system=None)
    processes = [
        Process("coordinator", State.RUNNING),
        Process("shard-0", State.RUNNING, restarts=1),
        Process("replica-0", State.WAITING),
    ]
    run = a_run(tmp_path)
    with LiveDisplay(lambda: run_status.read(run.status), console) as display:
        display.event("shard-0: killed by SIGKILL; starts again [soon]")
        display.tick(processes)
    shown = console.export_text()
    for text in (
        "epoch 2.50",
        "1 min 15 s left",
        "Push: the replicas wait",
        "starts again [soon]",
    ):
        assert text in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if line.split()}
    assert rows["shard-0"] == ["shard-0", "serving", "2", "1,234", "updates", "1"]
    assert rows["replica-0"] == ["replica-0", "waiting", "1", "6,000", "samples", "0"]


def test_status_lists_every_process_with_its_metrics_while_the_run_lives(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    held = run.lock()
    found = status.find(tmp_path)
    assert found is not None
    assert not found.is_over
    console = Console(width=120, record=True)
    status.show(found, console)
    shown = console.export_text()
    assert "http://127.0.0.1:9001/metrics" in shown
    assert "What limits the speed: Push: the replicas wait 40%" in shown
    os.close(held)


def test_status_of_an_ended_run_has_no_column_without_content(tmp_path: Path) -> None:
    a_run(tmp_path, phase="Complete")
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()
    assert [line.split() for line in shown[1:5]] == [
        ["process", "state", "incarnation", "done"],
        ["coordinator", "Complete"],
        ["shard-0", "ended", "2", "1,234", "updates"],
        ["replica-0", "ended", "1", "6,000", "samples"],
    ]


def test_status_says_how_stale_pushes_are(tmp_path: Path) -> None:
    shard, replica = STATUS["members"]
    members = [shard | {"stalenessP50": 2, "stalenessP99": 7}, replica]
    a_run(tmp_path, members=members, training=TRAINING | {"predictionError": 0.291})
    shown = CliRunner().invoke(app, ["status", str(tmp_path)]).output.splitlines()
    assert "staleness p50 2 p99 7 updates · predictions miss 29% of the way ·" in shown[0]
    assert [line.split() for line in shown[1:5]] == [
        ["process", "state", "incarnation", "done", "staleness", "p50/p99"],
        ["coordinator", "Running"],
        ["shard-0", "ended", "2", "1,234", "updates", "2/7"],
        ["replica-0", "ended", "1", "6,000", "samples"],
    ]


def test_status_of_a_killed_run_says_how_to_go_on(tmp_path: Path) -> None:
    a_run(tmp_path)
    result = CliRunner().invoke(app, ["status", str(tmp_path), "--watch"])
    assert result.exit_code == 0
    assert "9001" not in result.output
    assert "go on with `disttrain resume`" in result.output


def test_status_as_json_is_the_coordinators_with_one_word_more(tmp_path: Path) -> None:
    a_run(tmp_path)
    result = CliRunner().invoke(app, ["status", str(tmp_path), "--json"])
    assert json.loads(result.output) == STATUS | {"running": False}


def test_status_of_another_folder_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert "is no output folder of `disttrain run`" in str(result.exception)


def test_status_of_a_damaged_file_names_it(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    run.job.touch()
    run.status.write_text("{")
    result = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert result.exit_code == 1
    assert f"{run.status} is damaged" in str(result.exception)


def test_resume_of_another_folder_is_an_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["resume", str(tmp_path)])
    assert "run.json is missing or damaged" in str(result.exception)


@pytest.mark.parametrize("command", ["get", "logs", "events", "top"])
def test_a_command_for_jobs_of_a_cluster_names_what_shows_a_run(
    command: str, tmp_path: Path
) -> None:
    run = a_run(tmp_path)
    run.job.touch()
    done = CliRunner().invoke(app, [command, str(tmp_path)])
    assert f"`disttrain status {tmp_path}`" in str(done.exception)
