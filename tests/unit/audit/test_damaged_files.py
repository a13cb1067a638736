"""What can no more be read of a run is named, and proves nothing about it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from builders.jobs import SMALL, a_job
from builders.ledgers import LoggedRun
from disttrain.audit import audit, reading
from disttrain.audit.evidence import Incarnation
from disttrain.audit.finding import Verdict
from disttrain.job.names import Role
from disttrain.launch import config as launch_config
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import NotARunFolder
from disttrain.launch.run_folder import RunFolder, RunRecord
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.parameter_server.ledger import Kind
from disttrain.replica import ledger as replica_ledger
from disttrain.telemetry import record_file
from disttrain.transport.config import TransportKind


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> RunFolder:
    """Two shards, two replicas, a few updates."""
    folder = RunFolder(tmp_path)
    folder.prepare()
    folder.job.write_text(SMALL)
    logged = LoggedRun()
    for _ in range(4):
        logged.push(0)
        logged.push(1)
    evidence = logged.evidence()
    for incarnation in (*evidence.shard_incarnations, *evidence.replica_incarnations):
        _path(folder, incarnation).write_bytes(incarnation.records.tobytes())
    return folder


def _path(folder: RunFolder, incarnation: Incarnation) -> Path:
    return record_file.path_of(folder.ledger, incarnation.process, incarnation.incarnation)


def _random_bytes(run: RunFolder) -> Path:
    path = shard_ledger.path_of(run.ledger, 0, 1)
    head = path.read_bytes()[: shard_ledger.RECORD.itemsize]
    path.write_bytes(head + np.random.default_rng(1).bytes(40 * len(head)))
    return path


def _changed(**fields: int) -> Callable[[RunFolder], Path]:
    def change(run: RunFolder) -> Path:
        path = shard_ledger.path_of(run.ledger, 0, 1)
        records = shard_ledger.read(path).copy()
        for name, value in fields.items():
            records[name][-1] = value
        path.write_bytes(records.tobytes())
        return path

    return change


def _dangling_link(run: RunFolder) -> Path:
    path = shard_ledger.path_of(run.ledger, 0, 1)
    path.unlink()
    path.symlink_to(run.path / "nowhere")
    return path


def _folder_for_a_ledger(run: RunFolder) -> Path:
    path = shard_ledger.path_of(run.ledger, 0, 1)
    path.unlink()
    path.mkdir()
    return path


def _folder_for_a_journal(run: RunFolder) -> Path:
    path = run.path / "checkpoints" / "journal" / "00000003.jsonl"
    path.mkdir(parents=True)
    return path


def _link_for_a_journal(run: RunFolder) -> Path:
    path = run.path / "checkpoints" / "journal" / "00000003.jsonl"
    path.parent.mkdir(parents=True)
    path.symlink_to(run.path / "nowhere")
    return path


def _no_json(run: RunFolder) -> Path:
    run.summary.write_bytes(b"\xff{")
    return run.summary


def test_a_run_that_can_be_read_is_clean(run: RunFolder) -> None:
    assert audit.is_clean(audit.audit(reading.read(run.path)))


@pytest.fixture(name="elsewhere")
def _elsewhere(run: RunFolder, tmp_path: Path) -> RunFolder:
    """The output folder of a joiner, with the only log of replica 1."""
    joiner = RunFolder(tmp_path / "joined")
    joiner.ledger.mkdir(parents=True)
    log = replica_ledger.path_of(run.ledger, 1, 1)
    log.rename(joiner.ledger / log.name)
    return joiner


def test_the_log_of_a_joiner_is_read_from_its_own_folder(
    run: RunFolder, elsewhere: RunFolder
) -> None:
    assert not audit.is_clean(audit.audit(reading.read(run.path)))
    assert audit.is_clean(audit.audit(reading.read(run.path, [elsewhere.path])))
    assert audit.is_clean(audit.audit(reading.read(run.path, [elsewhere.ledger])))


def test_of_two_copies_of_a_log_the_longer_one_counts(run: RunFolder, elsewhere: RunFolder) -> None:
    log = replica_ledger.path_of(elsewhere.ledger, 1, 1)
    short = replica_ledger.path_of(run.ledger, 1, 1)
    short.write_bytes(log.read_bytes()[: 2 * replica_ledger.RECORD.itemsize])

    assert audit.is_clean(audit.audit(reading.read(run.path, [elsewhere.path])))
    short.write_bytes(bytes(replica_ledger.RECORD.itemsize))
    findings = audit.audit(reading.read(run.path, [elsewhere.path]))
    assert "there is another log of this name" in audit.text(findings).splitlines()[-1]


def test_a_folder_without_the_log_of_a_replica_is_refused(
    run: RunFolder, elsewhere: RunFolder, tmp_path: Path
) -> None:
    replica_ledger.path_of(elsewhere.ledger, 1, 1).unlink()
    (elsewhere.ledger / "shard-0.i1.bin").touch()
    for folder in (elsewhere.path, tmp_path / "none"):
        with pytest.raises(NotARunFolder, match=r"--ledger: .* holds no log of a replica"):
            reading.read(run.path, [folder])


def test_the_log_of_a_joiner_of_another_run_is_refused(
    run: RunFolder, elsewhere: RunFolder, tmp_path: Path
) -> None:
    record = RunRecord(
        job_uid="one", task_folder=tmp_path, launcher_pid=1, sockets=tmp_path, cores=2, processes={}
    )
    run.record.write_bytes(record.to_json())
    config = LaunchConfig(
        job=a_job(),
        job_uid="other",
        role=Role.REPLICA,
        index=None,
        run_folder=elsewhere.path,
        task_folder=tmp_path,
        coordinator_address="tcp://127.0.0.1:1",
        transport=TransportKind.TCP,
        threads=1,
    )
    elsewhere.config("replica").parent.mkdir(exist_ok=True)
    launch_config.write(elsewhere.config("replica"), config)

    with pytest.raises(NotARunFolder, match="of a joiner of another run"):
        reading.read(run.path, [elsewhere.path])


@pytest.mark.parametrize(
    "damage",
    [
        _random_bytes,
        _changed(kind=200),
        _changed(kind=Kind.PUSHES_FOLDED, first=1, sequence=2**63),
        _changed(kind=Kind.PUSHES_FOLDED, first=9, sequence=8),
        _changed(kind=Kind.LOST, samples=2**62),
        _dangling_link,
        _folder_for_a_ledger,
        _folder_for_a_journal,
        _link_for_a_journal,
        _no_json,
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_judged(
    run: RunFolder, damage: Callable[[RunFolder], Path]
) -> None:
    damaged = damage(run)

    findings = audit.audit(reading.read(run.path))

    assert Verdict.VIOLATED not in {finding.verdict for finding in findings}
    assert not audit.is_clean(findings)
    last = audit.text(findings).splitlines()[-1]
    assert last.startswith("cannot be judged: ")
    assert str(damaged) in last


def test_folded_records_may_not_add_up_to_more_than_any_run_has(run: RunFolder) -> None:
    path = shard_ledger.path_of(run.ledger, 0, 1)
    fold = shard_ledger.read(path)[-1:].copy()
    fold["kind"], fold["first"], fold["sequence"] = Kind.PUSHES_FOLDED, 1, 2**26
    path.write_bytes(np.repeat(fold, 3).tobytes())

    last = audit.text(audit.audit(reading.read(run.path))).splitlines()[-1]

    assert f"tells of {3 * 2**26} updates" in last
