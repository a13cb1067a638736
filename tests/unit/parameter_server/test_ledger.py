import errno
import os
from pathlib import Path

import pytest

from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind, Ledger, Record
from disttrain.replica import ledger as replica_ledger
from disttrain.telemetry import record_file


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = ledger.path_of(tmp_path / "ledger", 1, 2)
    log = Ledger(path)
    numbers = Record(*range(1, len(Record._fields) + 1))
    log.append(numbers._replace(rate=0.25, staleness=-1))
    log.append(Record(kind=Kind.FENCED, sender=7))
    log.close()
    head, *_ = read = ledger.read(path)
    assert (head["kind"], head["samples"]) == (Kind.MISSING, 0)
    read = read[1:]
    assert len(read) == 2
    assert read["time_ns"][0] > 0
    for name, value in numbers._replace(rate=0.25, staleness=-1)._asdict().items():
        assert read[name][0] == value
    assert (read["kind"][1], read["sender"][1]) == (Kind.FENCED, 7)


def test_a_torn_last_record_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "shard.bin"
    log = Ledger(path)
    log.append(Record(kind=Kind.PUSHED))
    log.close()
    with path.open("ab") as file:
        file.write(b"half a record")
    assert ledger.read(path)["kind"].tolist() == [Kind.MISSING, Kind.PUSHED]
    assert record_file.ends_in_half(path, ledger.RECORD)


def _full(descriptor: int, content: bytes) -> int:
    raise OSError(errno.ENOSPC, f"no room for {len(content)} bytes in {descriptor}")


def test_training_outlives_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards, replicas = Ledger(tmp_path / "s"), replica_ledger.Ledger(tmp_path / "r")
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", _full)
        shards.append(Record(kind=Kind.PUSHED))
        replicas.refused(1)
    shards.append(Record(kind=Kind.FENCED))
    replicas.refused(2)
    assert (shards.missing, replicas.missing) == (1, 1)
    head, record = ledger.read(tmp_path / "s")
    assert (head["samples"], record["kind"]) == (1, Kind.FENCED)
    head, record = replica_ledger.read(tmp_path / "r")
    assert (head["samples"], record["number"]) == (1, 2)
    shards.close()
    replicas.close()
