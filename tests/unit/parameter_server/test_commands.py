"""The coordinator's commands to a shard, without a coordinator."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest.mock import create_autospec

import pytest

from builders import batch_shards, downpour_shards, placements
from builders.checkpoints import parts_at
from disttrain.checkpoint import part_file
from disttrain.checkpoint.part_file import Content, Written
from disttrain.checkpoint.reading import Checkpoint
from disttrain.coordinator.protocol import commands
from disttrain.coordinator.protocol.commands import NumberedCommand, Result
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server.acknowledged import AcknowledgedFile, Count
from disttrain.parameter_server.commands import CommandRunner
from disttrain.parameter_server.deliveries import Coverage, Delivered, SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.records import Records
from disttrain.parameter_server.reporting import ServedMetrics
from disttrain.parameter_server.restoring import RestoredShard
from disttrain.parameter_server.serving import Serving
from disttrain.parameter_server.shard import Shard
from disttrain.state.share import Share
from disttrain.telemetry.metrics import Histogram

CHUNK_BYTES = 64


class HeldDisk:
    """Writes nothing before `goes_on`; the folders that were written to."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.written: list[str] = []

    def write(self, path: Path, _: Sequence[Content], __: Mapping[str, str]) -> Written:
        assert self.goes_on.wait(20)
        self.written.append(path.parent.name)
        return Written(bytes=1, hash="0")


def a_runner() -> CommandRunner:
    state = ShardState(index=0, incarnation=1)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0))
    shard.configure(placements.a_placement({placements.PARAMETERS: 16}, 1), CHUNK_BYTES)
    state.is_initialised = True
    return runner_of(shard)


def runner_of(shard: Shard, *checkpoints: Checkpoint) -> CommandRunner:
    """What it returns to are these, from number 1 on."""
    return runner_with(shard, lambda number, _: batch_shards.read(checkpoints[number - 1]))


def runner_with(shard: Shard, reload: Callable[[int, Share], RestoredShard]) -> CommandRunner:
    serving = create_autospec(Serving, instance=True)
    metrics = create_autospec(
        ServedMetrics,
        instance=True,
        checkpoint_seconds=Histogram(),
        blocking_seconds=Histogram(),
        checkpoint_failures=0,
    )
    return CommandRunner(
        shard, serving, CHUNK_BYTES, metrics, lambda at: parts_at(Path(at)), reload
    )


def a_checkpoint(number: int) -> NumberedCommand:
    return NumberedCommand(id=number, order=commands.Checkpoint(number=number, folder=f"c{number}"))


def next_finished(runner: CommandRunner) -> tuple[NumberedCommand, Result]:
    end = time.monotonic() + 20
    while (finished := runner.finished()) is None:
        assert time.monotonic() < end
        time.sleep(0.001)
    return finished


def test_a_checkpoint_waits_for_the_end_of_one_that_was_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk, runner = HeldDisk(), a_runner()
    monkeypatch.setattr(part_file, "write", disk.write)
    asked = [a_checkpoint(number) for number in (1, 2, 3)]
    assert [runner.carry_out(command) for command in asked] == [None, None, None]
    disk.goes_on.set()
    finished = [next_finished(runner) for _ in range(2)]
    assert [command.id for command, _ in finished] == [1, 3]
    assert isinstance(finished[1][1], commands.ShardWritten)
    assert disk.written == ["c1", "c3"]
    assert not runner.is_writing


def test_after_a_return_nothing_is_at_risk(tmp_path: Path) -> None:
    shard = batch_shards.a_shard()
    batch_shards.one_iteration([shard])
    checkpoint = batch_shards.commit(tmp_path, [shard], number=3)
    runner = runner_of(shard, checkpoint, checkpoint, checkpoint)

    asked = NumberedCommand(id=1, order=commands.RollBack(checkpoint=3))

    assert runner.carry_out(asked) is None
    assert next_finished(runner) == (asked, commands.Done())
    assert (runner.checkpoint, runner.checkpointed) == (3, shard.state.count)


def test_incarnations_that_are_over_and_covered_are_forgotten_but_not_those_with_losses(
    tmp_path: Path,
) -> None:
    over, with_losses, incarnations = (
        SenderIncarnation(0, 1),
        SenderIncarnation(1, 1),
        SenderIncarnation(2, 1),
    )
    file = AcknowledgedFile(tmp_path / "acknowledged.bin")
    state = ShardState(index=0, incarnation=1)
    records = Records(incarnation=1, acknowledged=file)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0), records)
    shard.configure(placements.a_placement({placements.PARAMETERS: 16}, 1), CHUNK_BYTES)
    state.is_initialised = True
    for incarnation in (over, with_losses, incarnations):
        state.deliveries.delivered[incarnation] = Delivered(sequence=4, pushes=4)
        file.store(incarnation, Count(4, 4, lost=int(incarnation is with_losses)))
    runner = runner_of(shard)
    runner.coverage = Coverage(kept=1, over=[over, with_losses])
    for number, committed in ((1, None), (2, 1)):
        command = commands.Checkpoint(number=number, folder=str(tmp_path), committed=committed)
        runner.carry_out(NumberedCommand(id=number, order=command))
        _until_written(runner)
    assert set(state.deliveries.delivered) == set(file.counts()) == {with_losses, incarnations}
    file.close()


def _until_written(runner: CommandRunner) -> None:
    end = time.monotonic() + 20.0
    while runner.finished() is None:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_shard_goes_on_while_a_checkpoint_is_read_to_return_to(tmp_path: Path) -> None:
    goes_on = threading.Event()

    def reload(number: int, _share: Share) -> RestoredShard:
        assert goes_on.wait(20)
        return batch_shards.read(checkpoints[number])

    shard = batch_shards.a_shard()
    batch_shards.one_iteration([shard])
    checkpoints = {
        number: batch_shards.commit(tmp_path, [shard], number=number) for number in (1, 2)
    }
    runner = runner_with(shard, reload)
    asked = [
        NumberedCommand(id=number, order=commands.RollBack(checkpoint=number)) for number in (1, 2)
    ]

    assert [runner.carry_out(command) for command in asked] == [None, None]
    fence = commands.Fence(index=0, incarnation=1, live_replicas=1)
    assert isinstance(runner.carry_out(NumberedCommand(id=3, order=fence)), commands.Fenced)
    assert runner.finished() is None
    goes_on.set()

    assert [next_finished(runner) for _ in asked] == [
        (command, commands.Done()) for command in asked
    ]
    assert runner.checkpoint == 2


def test_what_comes_after_the_last_replica_was_fenced_counts_as_one_s() -> None:
    """It is recorded as what the rule makes of it: 0 would tell a replay nothing."""
    shard = batch_shards.a_shard()
    fence = commands.Fence(index=0, incarnation=1, live_replicas=0)
    runner_of(shard).carry_out(NumberedCommand(id=1, order=fence))
    assert shard.state.live_replicas == 1


def test_what_no_kept_checkpoint_can_take_back_is_folded_at_the_next_one(tmp_path: Path) -> None:
    state = ShardState(index=0, incarnation=1)
    records = create_autospec(Records, instance=True)
    shard = downpour_shards.build(state, Sgd(learning_rate=1.0), records)
    shard.configure(placements.a_placement({placements.PARAMETERS: 16}, 1), CHUNK_BYTES)
    state.is_initialised = True
    runner = runner_of(shard)
    for number, committed in ((1, None), (2, 1), (3, 2)):
        state.count = 10 * number
        command = commands.Checkpoint(number=number, folder=str(tmp_path), committed=committed)
        runner.carry_out(NumberedCommand(id=number, order=command))
        _until_written(runner)
    assert [call.args for call in records.settled.call_args_list] == [(10,), (20,)]


@pytest.mark.parametrize("final", [False, True])
def test_only_the_final_checkpoint_finishes_what_waits(
    monkeypatch: pytest.MonkeyPatch, *, final: bool
) -> None:
    disk, finished = HeldDisk(), [0]
    monkeypatch.setattr(part_file, "write", disk.write)
    disk.goes_on.set()
    runner = a_runner()
    stage = runner._shard.stage
    monkeypatch.setattr(stage, "finish", lambda: finished.append(1))

    order = commands.Checkpoint(number=1, folder="c1", final=final)
    runner.carry_out(NumberedCommand(id=1, order=order))
    next_finished(runner)

    assert sum(finished) == int(final)
