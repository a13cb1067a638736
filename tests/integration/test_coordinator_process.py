"""A real coordinator process, scripted members: from the first join to the summary, and kill -9.

The members only say that they apply updates: they leave no ledgers for `disttrain audit`. Whole
jobs whose coordinator is killed are audited in test_faults.py.
"""

import json
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from builders.control_members import CoordinatorProcess, FakeReplica, Member, play, tell
from disttrain.coordinator.protocol import fields, messages
from disttrain.transport.errors import TransportTimeout
from disttrain.transport.header import Header, Role
from disttrain.transport.interface import Channel

TWO_AND_TWO = ("spec.replicas.count=2", "spec.parameterServer.shards=2", "spec.portionSize=64")


def _summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def _have_processed(replicas: list[FakeReplica], steps: int) -> bool:
    return sum(len(replica.processed) for replica in replicas) >= steps


def _has_changed(file: Path) -> Callable[[], bool]:
    """Whether it has, from now on."""
    before = file.stat().st_mtime_ns
    return lambda: file.stat().st_mtime_ns != before


def _times_processed(replicas: list[FakeReplica]) -> dict[tuple[int, int, int], int]:
    counts: dict[tuple[int, int, int], int] = {}
    for replica in replicas:
        for lease, first, end in replica.processed:
            for sample in range(lease.first + first, lease.first + end):
                key = (lease.epoch, lease.portion, sample)
                counts[key] = counts.get(key, 0) + 1
    return counts


def test_a_job_runs_from_the_first_join_to_the_summary(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, *TWO_AND_TWO, "spec.stop.epochs=3") as job:
        job.start()
        shards = [job.shard(index) for index in range(2)]
        replicas = [job.replica(index) for index in range(2)]
        members: list[Member] = [*shards, *replicas]
        play(members, lambda: all(member.ended for member in members))
        assert job.process is not None
        play(shards, lambda: job.process is not None and job.process.poll() is not None)
        assert job.process.returncode == 0
    summary = _summary(tmp_path)
    assert (summary["phase"], summary["reason"]) == ("Complete", "Epochs")
    assert (summary["samples"], summary["epochs"], summary["steps"]) == (1920, 3, 60)
    assert summary["samplesRepeated"] == summary["portionsRequeued"] == 0
    assert summary["finalMeasures"] == {"correct": 0.8}
    assert replicas[0].evaluated[-1] == str(tmp_path / "model.safetensors")
    assert set(_times_processed(replicas).values()) == {1}
    assert replicas[0].uploads + replicas[1].uploads == 1
    assert json.loads((tmp_path / "status.json").read_text())["phase"] == "Complete"


@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_coordinator_goes_on_from_its_journal(tmp_path: Path, kills: int) -> None:
    with CoordinatorProcess(tmp_path, *TWO_AND_TWO, "spec.stop.epochs=4") as job:
        job.start()
        shards = [job.shard(index) for index in range(2)]
        replicas = [job.replica(index) for index in range(2)]
        members: list[Member] = [*shards, *replicas]
        for kill in range(kills):
            play(members, partial(_have_processed, replicas, 12 * (kill + 1)))
            job.kill()
            job.start()
            tell(job.launcher(), messages.Status())
        play(members, lambda: all(member.ended for member in members))
    summary = _summary(tmp_path)
    assert (summary["phase"], summary["samples"]) == ("Complete", 2560)
    assert summary["restarts"] == {"coordinator": kills, "shard": 0, "replica": 0}
    assert summary["samplesRepeated"] == 0
    assert set(_times_processed(replicas).values()) == {1}


def test_a_dead_replicas_portions_are_done_by_the_other(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, *TWO_AND_TWO, "spec.stop.epochs=2") as job:
        job.start()
        shards = [job.shard(index) for index in range(2)]
        replicas = [job.replica(index) for index in range(2)]
        dead, alive = replicas
        play([*shards, *replicas], lambda: len(dead.processed) >= 3)
        died = messages.MemberDied(role=Role.REPLICA, index=0, pid=20_000, exit_code=-9)
        tell(job.launcher(), died)
        members: list[Member] = [*shards, alive]
        play(members, lambda: all(member.ended for member in members))
    assert all([fence.index for fence in shard.fenced] == [0] for shard in shards)
    summary = _summary(tmp_path)
    assert summary["phase"] == "Complete"
    assert summary["samples"] == 1280
    assert summary["portionsRequeued"] >= 1


def test_a_stop_checkpoints_first_and_the_job_can_be_resumed(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, *TWO_AND_TWO, "spec.stop.epochs=4") as job:
        job.start()
        shards = [job.shard(index) for index in range(2)]
        replicas = [job.replica(index) for index in range(2)]
        members: list[Member] = [*shards, *replicas]
        play(members, lambda: sum(len(replica.processed) for replica in replicas) >= 20)
        tell(job.launcher(), messages.Stop(reason="Ctrl-C"))
        play(members, lambda: all(member.ended for member in members))
        stopped = _summary(tmp_path)
        assert stopped["phase"] == "Stopped"
        assert 0 < stopped["samples"] < 2560
        job.kill()
        checkpoint = max((tmp_path / "checkpoints").glob("[0-9]*"))
        job.start(resume_from=checkpoint)
        restored = fields.Restored(initialised=True, checkpoint=1, version=9)
        shards = [job.shard(index, restored) for index in range(2)]
        again = [job.replica(index) for index in range(2)]
        members = [*shards, *again]
        play(members, lambda: all(member.ended for member in members))
    summary = _summary(tmp_path)
    assert (summary["phase"], summary["samples"]) == ("Complete", 2560)
    assert again[0].joined.member.incarnation > replicas[0].joined.member.incarnation + 100
    assert again[0].uploads + again[1].uploads == 0
    assert set(_times_processed([*replicas, *again]).values()) == {1}


def send_when_there_is_room(channel: Channel, header: Header, payload: bytes) -> None:
    """To a coordinator nothing waits by itself: a full queue raises."""
    deadline = time.monotonic() + 90
    while True:
        try:
            return channel.send(header, payload)
        except TransportTimeout:
            assert time.monotonic() < deadline, "the coordinator reads nothing"
            channel.receive(0.01)


def test_garbage_neither_stops_the_coordinator_nor_disturbs_others(tmp_path: Path) -> None:
    with CoordinatorProcess(tmp_path, "spec.portionSize=64", "spec.stop.epochs=2") as job:
        job.start()
        shard, replica = job.shard(0), job.replica(0)
        channel = job.channel(Role.REPLICA)
        header = replica.control.header(7)
        assert job.process is not None
        before = psutil.Process(job.process.pid).memory_info().rss
        garbage = (b"", b"{", b"\xff" * 1000, b'{"kind":"heartbeat"}', b"[" * 100_000)
        for payload in garbage * 100:
            send_when_there_is_room(channel, header._replace(count=len(payload)), payload)
        members: list[Member] = [shard, replica]
        play(members, lambda: len(replica.processed) >= 20)
        grown = psutil.Process(job.process.pid).memory_info().rss - before
        assert grown < 32 << 20
        play(members, lambda: all(member.ended for member in members))
        channel.close()
    assert _summary(tmp_path)["samples"] == 1280


def test_a_coordinator_that_was_stopped_for_long_declares_nobody_dead(tmp_path: Path) -> None:
    timeouts = (
        "spec.coordinator.heartbeatSeconds=0.1",
        "spec.coordinator.leaseSeconds=2",
        "spec.coordinator.memberTimeoutSeconds=4",
    )
    with CoordinatorProcess(tmp_path, *TWO_AND_TWO, "spec.stop.epochs=2", *timeouts) as job:
        job.start()
        shards = [job.shard(index) for index in range(2)]
        replicas = [job.replica(index) for index in range(2)]
        members: list[Member] = [*shards, *replicas]
        play(members, partial(_have_processed, replicas, 8))
        assert job.process is not None
        job.process.send_signal(signal.SIGSTOP)
        # Nobody says anything: it would hear heartbeats that wait before it looks at silence.
        time.sleep(6)
        status = tmp_path / "status.json"
        job.process.send_signal(signal.SIGCONT)
        # The first may end a turn that it was stopped in; before the second it has looked.
        for _ in range(2):
            play((), _has_changed(status))
        play(members, lambda: all(member.ended for member in members))
    summary = _summary(tmp_path)
    assert (summary["phase"], summary["portionsRequeued"]) == ("Complete", 0)
    assert all(replica.joined.member.incarnation == 1 for replica in replicas)
