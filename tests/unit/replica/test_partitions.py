"""A model that a replica divides among its processes, beside the same model in one."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided_models import CPU, in_parts
from disttrain.job.roles import Replicas
from disttrain.replica.division import Division
from disttrain.task.errors import ModelError

SAMPLE = (2, 7, 6)


def a_model(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(36, 5),
        nn.GELU(),
        nn.Linear(5, 4),
    ).to(dtype)


def a_loss(model: nn.Module, x: Tensor) -> Tensor:
    """Calls the model twice, and looks at its parameters."""
    labels = torch.arange(len(x)) % 4
    twice = functional.cross_entropy(model(x), labels) + model(x.flip(-1)).square().mean()
    squares = torch.stack([each.square().sum() for each in model.parameters()]).sum()
    whole: Tensor = twice + 0.01 * squares
    return whole


def gradients(model: nn.Module) -> dict[str, Tensor | None]:
    return {name: each.grad for name, each in model.named_parameters()}


@pytest.mark.parametrize("count", [2, 3])
def test_losses_gradients_and_buffers_are_those_of_one_process(count: int) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    with in_parts(model, count, SAMPLE) as divided:
        for step in range(3):
            x = torch.randn(5, *SAMPLE, dtype=torch.float64, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            with divided.computing(step):
                loss = a_loss(model, x)
            loss.backward()  # type: ignore[no-untyped-call]
            wanted = a_loss(alone, twin)
            wanted.backward()  # type: ignore[no-untyped-call]

            torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(x.grad, twin.grad, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(gradients(model), gradients(alone), rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(dict(model.named_buffers()), dict(alone.named_buffers()))
            for each in (model, alone):
                # The next step's values are others, in all partitions.
                torch.optim.SGD(each.parameters(), lr=0.1).step()
                each.zero_grad()


def test_frozen_and_unused_parameters_have_no_gradient() -> None:
    model = a_model()
    model[0].requires_grad_(False)  # noqa: FBT003
    alone = copy.deepcopy(model)
    x = torch.randn(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as divided:
        with divided.computing(0):
            loss = model(x)[:, 0].sum()
        loss.backward()
    alone(x)[:, 0].sum().backward()
    assert model[0].weight.grad is None
    torch.testing.assert_close(gradients(model), gradients(alone), rtol=1e-9, atol=1e-11)


def test_a_call_without_gradients_and_in_evaluation_is_that_of_one_process() -> None:
    model = a_model()
    x = torch.randn(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as divided:
        with divided.computing(0), torch.no_grad():
            model.eval()
            found = model(x)
        assert "forward" not in vars(model)
    torch.testing.assert_close(found, model(x), rtol=1e-10, atol=1e-12)


def test_a_batch_is_computed_in_bfloat16_where_the_task_says_so() -> None:
    model = a_model(torch.float32)
    alone = copy.deepcopy(model)
    x = torch.randn(4, *SAMPLE)
    with in_parts(model, 2, SAMPLE) as divided, torch.autocast("cpu", torch.bfloat16):
        with divided.computing(0):
            found = model(x)
        assert found.dtype is torch.bfloat16
        wanted = alone(x)
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_dropout_goes_by_the_seed_of_the_step_and_the_call() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(84, 4)).double()
    x = torch.ones(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as divided:
        found = []
        for seed in (7, 8, 7):
            with divided.computing(seed):
                found.append((model(x).detach(), model(x).detach()))
    assert not found[0][0].equal(found[0][1])
    assert not found[0][0].equal(found[1][0])
    assert found[0][0].equal(found[2][0])
    assert found[0][1].equal(found[2][1])


def test_a_partition_is_sent_its_part_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(84, 40)).double()
    with in_parts(model, 4, SAMPLE) as divided:
        for _ in range(2):
            with divided.computing(0):
                model(torch.zeros(1, *SAMPLE, dtype=torch.float64))
        sent = divided._peers.traffic.nbytes
    # Twice ten rows and their biases to each of three, and the sample.
    assert sent == 2 * 3 * (10 * 85 + 84) * 8


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.zeros(2, 2, 8, 6).double(), r"divided for \(2, 7, 6\), and \(2, 8, 6\) came"),
        (torch.zeros(2, *SAMPLE, dtype=torch.int64), "floating-point samples, not torch.int64"),
    ],
)
def test_other_samples_than_the_model_is_divided_for_are_refused(x: Tensor, said: str) -> None:
    model = a_model()
    with (
        in_parts(model, 2, SAMPLE) as divided,
        divided.computing(0),
        pytest.raises(ValueError, match=said),
    ):
        model(x)


def test_what_cannot_be_divided_names_the_layer() -> None:
    replicas = Replicas(partitions=6)
    with pytest.raises(ModelError, match=r"spec.replicas.partitions: 6: 5: 5 outputs cannot"):
        Division(a_model(), replicas, SAMPLE, CPU).planned(0)
