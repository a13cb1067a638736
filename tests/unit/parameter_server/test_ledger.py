import errno
import os
from pathlib import Path

import pytest

from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind, Ledger, Record
from disttrain.replica import ledger as replica_ledger


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = ledger.path_of(tmp_path / "ledger", 1, 2)
    log = Ledger(path)
    numbers = Record(*range(1, len(Record._fields) + 1))
    log.append(numbers._replace(rate=0.25, staleness=-1))
    log.append(Record(kind=Kind.FENCED, sender=7))
    log.close()
    read = ledger.read(path)
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
    assert len(ledger.read(path)) == 1


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
    assert ledger.read(tmp_path / "s")["kind"].tolist() == [Kind.FENCED]
    assert replica_ledger.read(tmp_path / "r")["number"].tolist() == [2]
    shards.close()
    replicas.close()
