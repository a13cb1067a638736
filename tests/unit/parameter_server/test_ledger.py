from pathlib import Path

from disttrain.parameter_server import ledger
from disttrain.parameter_server.ledger import Kind, Ledger, Record


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
