"""Whether the counts of lost updates are exact follows what shards say they cannot count."""

import json
from pathlib import Path

from builders.machines import Machine
from disttrain.coordinator.process.reporting import Reporting, RunFiles
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.protocol.reports import ShardReport
from disttrain.parameter_server.acknowledged import AcknowledgedFile
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.records import Records


def is_exact(machine: Machine, folder: Path, *, by_this_machine: bool = True) -> object:
    """As status.json says."""
    reporting = Reporting(
        machine.coordinator,
        RunFiles(folder),
        ServedMetrics("127.0.0.1:0"),
        losses_are_exact=by_this_machine,
    )
    reporting.finish(machine.now)
    return json.loads((folder / "status.json").read_text())["updatesLostIsExact"]


def test_counts_are_at_least_so_many_while_a_shard_has_no_room_for_a_sender(
    tmp_path: Path,
) -> None:
    machine = Machine()
    shard, *_ = machine.running()
    machine.heartbeat(shard, ShardReport(uncounted=2))
    assert not is_exact(machine, tmp_path)
    machine.heartbeat(shard, ShardReport(uncounted=0))
    assert is_exact(machine, tmp_path)
    assert not is_exact(machine, tmp_path, by_this_machine=False)


def test_what_a_dead_shard_could_not_count_stays_unknown(tmp_path: Path) -> None:
    machine = Machine()
    shard, *_ = machine.running()
    machine.state.totals.add_report(shard, None, ShardReport(uncounted=1))
    machine.state.totals.add_report(shard, None, ShardReport())
    assert not is_exact(machine, tmp_path)


def test_a_shard_says_how_many_senders_it_cannot_count(tmp_path: Path) -> None:
    file = AcknowledgedFile(tmp_path / "acknowledged-0.bin")
    file.uncounted.add(SenderIncarnation(3, 1))
    assert Records(incarnation=1, acknowledged=file).num_uncounted == 1
    assert Records(incarnation=1).num_uncounted == 0
    file.close()


def test_a_shard_whose_counts_were_damaged_says_so() -> None:
    assert Records(incarnation=2, losses_are_whole=False).num_uncounted == 1
