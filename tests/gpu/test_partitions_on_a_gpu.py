"""A model that is divided among partitions on one GPU computes what it does there alone."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from builders.divided_models import in_parts

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
]
GPU = torch.device("cuda")
SAMPLE = (3, 12, 10)


def a_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(180, 20),
        nn.Tanh(),
        nn.Linear(20, 5),
    ).to(GPU, torch.float64)


@pytest.mark.parametrize("count", [2, 4])
def test_losses_and_gradients_are_those_of_one_process(count: int) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    x = torch.randn(8, *SAMPLE, dtype=torch.float64, device=GPU)
    labels = torch.arange(8, device=GPU) % 5
    with in_parts(model, count, SAMPLE, GPU) as divided:
        for seed in range(2):
            with divided.computing(seed):
                loss = functional.cross_entropy(model(x), labels)
            loss.backward()  # type: ignore[no-untyped-call]
            wanted = functional.cross_entropy(alone(x), labels)
            wanted.backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
            for own, given in zip(model.parameters(), alone.parameters(), strict=True):
                assert own.grad is not None
                assert own.grad.is_cuda
                torch.testing.assert_close(own.grad, given.grad, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(dict(model.named_buffers()), dict(alone.named_buffers()))
