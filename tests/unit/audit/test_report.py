"""What the audit says as a whole: what was violated, what cannot be judged, and of which moment."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from builders.jobs import SMALL
from builders.ledgers import LoggedRun
from disttrain.audit import audit
from disttrain.audit.finding import Finding, Verdict
from disttrain.cli.app import app
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server.ledger import Kind


def a_run() -> LoggedRun:
    run = LoggedRun()
    for _ in range(3):
        run.push(0)
    return run


def on_a_full_disk() -> LoggedRun:
    """Shard 1 could not write its last two updates."""
    run = a_run()
    del run.shards[1, 1][-2:]
    run.shards[1, 1].insert(0, {**run.shards[1, 1][0], "kind": Kind.MISSING, "samples": 2})
    return run


def lines(findings: tuple[Finding, ...]) -> list[str]:
    return audit.text(findings).splitlines()


def test_what_records_are_missing_of_cannot_be_judged() -> None:
    findings = audit.audit(on_a_full_disk().evidence())
    assert Verdict.VIOLATED not in {finding.verdict for finding in findings}
    assert not audit.is_clean(findings)
    assert lines(findings)[-1] == (
        "cannot be judged: the log of shard-1 (incarnation 1) lacks 2 records: its disk was full"
    )
    assert json.loads(audit.to_json(findings))["held"] is False


def test_what_whole_logs_contradict_is_violated() -> None:
    run = a_run()
    run.shards[1, 1].append(run.shards[1, 1][-1])
    assert lines(audit.audit(run.evidence()))[-1] == "PROMISES WERE VIOLATED"


def test_whole_logs_without_contradiction_are_clean() -> None:
    assert lines(audit.audit(a_run().evidence()))[-1] == "nothing was violated"


@pytest.fixture(name="living")
def _living(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path)
    folder.prepare()
    folder.job.write_text(SMALL)
    return folder


def audited(run: RunFolder, *options: str) -> Result:
    return CliRunner().invoke(app, ["audit", str(run.path), *options])


def test_a_run_that_goes_on_is_called_so_first(living: RunFolder) -> None:
    held = living.lock()
    done = audited(living)
    assert done.exit_code == ExitCode.COMPLETE
    assert done.output.startswith("the run is still going on: all that follows is of now\n")
    assert json.loads(audited(living, "--json").output)["running"] is True
    os.close(held)

    assert "going on" not in audited(living).output
    assert json.loads(audited(living, "--json").output)["running"] is False
