"""`disttrain inspect`: tables for people, JSON for programs."""

import json
from pathlib import Path

import pytest

from builders import batch_shards, placements
from builders.checkpoints import SMALL, a_checkpoint, a_layout, a_tensor, flip_bit
from builders.jobs import SMALL as SMALL_JOB
from disttrain.checkpoint import copies, names
from disttrain.cli import main
from disttrain.state.layout import ModelLayout


def inspected(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["disttrain", "inspect", *map(str, arguments)])
    try:
        return int(main.main())
    except SystemExit as end:
        return int(end.code or 0)


def test_the_tables_say_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = a_tensor("count", (), dtype="int64", vector=placements.BUFFERS_INT64, aliases=("n",))
    layout = ModelLayout(tensors=(*a_layout(SMALL).tensors, count))
    checkpoint = a_checkpoint(tmp_path, layout=layout)
    assert inspected(monkeypatch, checkpoint.path) == 0
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    hashes = [shard.file.hash for shard in checkpoint.manifest.holders]
    sizes = [shard.file.bytes for shard in checkpoint.manifest.holders]
    assert rows[1:7] == [
        "job digits (0123abcd)",
        "written 2026-01-02 03:04:05 UTC",
        "samples 4,096",
        "seed 11",
        "optimizer adagrad, state of 340 B",
        rows[6],
    ]
    assert rows[7] == "hashes all 3 verified"
    assert rows[9] == "part version size values optimizer state tables hash"
    assert rows[10] == (
        f"0 7 {sizes[0]} B 0/parameters/float32 48 0/sum_of_squares/float32 48 - {hashes[0]}"
    )
    assert rows[14:19] == [
        "first.weight 5 x 7 float32 35 0/parameters/float32",
        "first.bias 5 float32 5 0/parameters/float32",
        "second.weight 9 x 5 float32 45 0/parameters/float32",
        "count = n scalar int64 1 0/buffers/int64",
        "4 tensors 86",
    ]


def test_json_holds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = a_checkpoint(tmp_path)
    assert inspected(monkeypatch, checkpoint.path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["job"], found["samples"], found["hashes_verified"]) == ("digits", 4096, 3)
    assert found["shards"][1]["optimizer_state"] == [
        {"name": "0/sum_of_squares/float32", "elements": 37, "bytes": 148, "file": None}
    ]
    assert [tensor["shape"] for tensor in found["tensors"]] == [[5, 7], [5], [9, 5]]


def test_a_damaged_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = a_checkpoint(tmp_path)
    flip_bit(checkpoint.path / names.COORDINATOR, 0)
    assert inspected(monkeypatch, checkpoint.path) == 1
    assert "coordinator.json: its hash is" in capsys.readouterr().err


def test_names_cannot_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = a_checkpoint(tmp_path, layout=a_layout({"\x1b[2Jw\n": (4,)}))
    assert inspected(monkeypatch, checkpoint.path) == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "?[2Jw " in said


def test_the_vectors_of_a_batch_method_are_counted_instead_of_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shard = batch_shards.a_shard(placements.PARAMETERS_FLOAT64)
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard])

    assert inspected(monkeypatch, checkpoint.path) == 0

    line = next(one for one in capsys.readouterr().out.splitlines() if one.startswith("0 "))
    assert "0/parameters/float64 40   5 vectors, 1.6 kB" in line


def test_what_is_waited_for_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspected(monkeypatch, f"local://{tmp_path}/job") == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first == f"reading local://{tmp_path}/job"
    assert last.startswith(f"error: local://{tmp_path}/job holds no checkpoint; ")


def test_a_run_folder_does_not_decide_what_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = SMALL_JOB.replace("{name: digits}", "{name: digits, uid: u-1}")
    (tmp_path / "job.yaml").write_text(f"{job}  checkpoint: {{uri: s3://bucket/prefix}}\n")
    monkeypatch.setattr(copies, "checkpoint_at", pytest.fail)
    assert inspected(monkeypatch, tmp_path) == 2
    assert "s3://bucket/prefix/digits-u-1; name that place" in capsys.readouterr().err
