"""By which memory partitions exchange tensors."""

import pytest
import torch

from disttrain.groups.staging import Staging, staging


@pytest.mark.parametrize(
    ("device", "wanted"),
    [
        ("cpu", Staging.NONE),
        ("cuda", Staging.PINNED),
        # Also if each partition has a GPU of its own.
        ("cuda:0", Staging.PINNED),
        ("cuda:1", Staging.PINNED),
    ],
)
def test_a_gpu_s_tensors_go_by_pinned_memory_and_the_host_s_by_their_own(
    device: str, wanted: Staging
) -> None:
    assert staging(torch.device(device)) is wanted


@pytest.mark.parametrize("device", ["meta", "mps", "xpu:1"])
def test_no_other_device_is_exchanged_from(device: str) -> None:
    with pytest.raises(ValueError, match=f"CPUs and CUDA GPUs, and one is on {device}"):
        staging(torch.device(device))
