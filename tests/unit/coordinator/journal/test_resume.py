"""What a job that starts again from a checkpoint knows of the run before."""

import pytest

from disttrain.coordinator.journal import resume
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.protocol.fields import LostUpdates


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_losses_of_shards_that_are_no_more_count_once(shards: int) -> None:
    state = State()
    for shard, lost in enumerate((1, 2, 4)):
        state.totals.set_updates_lost(shard, LostUpdates(index=0, incarnation=1, lost=lost))

    resumed = resume.from_ledger(state, "checkpoints/00000002", shards)
    told = [1, 2, 4] if shards >= 3 else [sum((1, 2, 4)[s::shards]) for s in range(shards)]
    for shard, lost in enumerate(told):
        sender = LostUpdates(index=0, incarnation=1, lost=lost)
        assert resumed.totals.lost_by(shard, sender) == lost
        resumed.totals.set_updates_lost(shard, sender)

    assert resumed.totals.updates_lost == {"replica-0": 7}
