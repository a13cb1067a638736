import torch

from disttrain.holder.values import merge


def test_one_replica_is_copied_exactly() -> None:
    present, sent = torch.randn(50), torch.randn(50)
    merge(present, sent, 1)
    assert torch.equal(present, sent)


def test_several_replicas_count_alike() -> None:
    present = torch.zeros(3, dtype=torch.float64)
    merge(present, torch.full((3,), 8.0, dtype=torch.float64), 4)
    assert present.tolist() == [2.0, 2.0, 2.0]


def test_counters_never_go_back() -> None:
    present = torch.tensor([5, 5])
    merge(present, torch.tensor([3, 9]), 2)
    assert present.tolist() == [5, 9]
