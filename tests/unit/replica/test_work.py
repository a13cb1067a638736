import numpy as np

from disttrain.coordinator.protocol.fields import Lease, Position
from disttrain.replica.work import Cutting


def test_a_lease_is_cut_into_batches_in_the_portions_order() -> None:
    cutting = Cutting(
        batch_size=4, portion_indices=lambda portion, epoch: np.arange(20) + 100 * portion + epoch
    )

    items = list(cutting.items(Lease(id=9, epoch=1, portion=2, first=4, end=14)))

    assert [item.indices for item in items] == [
        [205, 206, 207, 208],
        [209, 210, 211, 212],
        [213, 214],
    ]
    assert [item.first for item in items] == [4, 8, 12]
    assert [item.position for item in items] == [
        Position(lease=9, offset=offset) for offset in (4, 8, 10)
    ]
