"""A model that a replica divides among its processes, beside the same model in one."""

import copy
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from builders.divided_models import CPU, assert_close, gradients, in_parts
from disttrain.job.roles import Replicas
from disttrain.job.spec import FrozenParameters
from disttrain.job.strategy_kind import Precision
from disttrain.parallel import LocallyConnected2d
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
    """Calls the model twice."""
    labels = torch.arange(len(x)) % 4
    twice: Tensor = functional.cross_entropy(model(x), labels) + model(x.flip(-1)).square().mean()
    return twice


@pytest.mark.parametrize("count", [2, 3])
def test_losses_gradients_and_buffers_are_those_of_one_process(count: int) -> None:
    model = a_model()
    alone = copy.deepcopy(model)
    with in_parts(model, count, SAMPLE) as parts:
        for step in range(3):
            x = torch.randn(5, *SAMPLE, dtype=torch.float64, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            with parts.divided.computing(step):
                loss = a_loss(parts.model, x)
            loss.backward()  # type: ignore[no-untyped-call]
            wanted = a_loss(alone, twin)
            wanted.backward()  # type: ignore[no-untyped-call]

            torch.testing.assert_close(loss, wanted, rtol=1e-10, atol=1e-12)
            torch.testing.assert_close(x.grad, twin.grad, rtol=1e-9, atol=1e-11)
            assert_close(parts.gradients(), gradients(alone))
            # The next step's values are others, in all partitions.
            parts.step(0.1)
            torch.optim.SGD(alone.parameters(), lr=0.1).step()
            alone.zero_grad()
            assert_close(parts.values(), alone.state_dict())


def test_a_partition_without_a_part_of_a_layer_trains_with_the_others(tmp_path: Path) -> None:
    torch.manual_seed(0)
    local = LocallyConnected2d(2, 3, 3, input_size=SAMPLE[1:], padding=1)
    model = nn.Sequential(local, nn.Tanh(), nn.Flatten(), nn.Linear(126, 4)).double()
    alone = copy.deepcopy(model)
    x = torch.randn(5, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 3, SAMPLE, partitioning={"0": "1x2"}) as parts:
        for step in range(2):
            with parts.divided.computing(step):
                loss = a_loss(parts.model, x)
            loss.backward()  # type: ignore[no-untyped-call]
            a_loss(alone, x).backward()  # type: ignore[no-untyped-call]
            assert_close(parts.gradients(), gradients(alone))
            parts.step(0.1)
            torch.optim.SGD(alone.parameters(), lr=0.1).step()
            alone.zero_grad()
        # As an export is made, and evaluated.
        whole = {name: parts.divided.tensor(parts.model, name) for name in alone.state_dict()}
        assert_close(whole, alone.state_dict())
        save_file({name: 2 * each for name, each in whole.items()}, tmp_path / "twice")
        with parts.divided.loaded(str(tmp_path / "twice")) as found:
            weight = parts.divided.tensor(found, "0.weight")
            assert_close({"": weight}, {"": 2 * local_weight(alone)})
        layout = parts.division.layout(Precision.FLOAT64, {}, FrozenParameters.SHARED)
    holders = [each.vector.partition for each in layout.tensors if each.name == "0.weight"]
    assert holders == [0, 1]


def local_weight(model: nn.Module) -> Tensor:
    return model.get_parameter("0.weight").detach()


def test_frozen_and_unused_parameters_have_no_gradient() -> None:
    model = a_model()
    model[0].requires_grad_(False)  # noqa: FBT003
    x = torch.randn(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as parts:
        with parts.divided.computing(0):
            loss = parts.model(x)[:, 0].sum()
        loss.backward()
    model(x)[:, 0].sum().backward()
    assert parts.gradients()["0.weight"] is None
    assert_close(parts.gradients(), gradients(model))


def test_a_call_without_gradients_and_in_evaluation_is_that_of_one_process() -> None:
    model = a_model()
    x = torch.randn(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as parts:
        with parts.divided.computing(0), torch.no_grad():
            parts.model.eval()
            found = parts.model(x)
        assert "forward" not in vars(parts.model)
    torch.testing.assert_close(found, model.eval()(x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_batch_is_computed_in_fewer_bits_where_the_task_says_so(kind: torch.dtype) -> None:
    model = a_model(torch.float32)
    x = torch.randn(4, *SAMPLE)
    with in_parts(model, 2, SAMPLE) as parts, torch.autocast("cpu", kind):
        with parts.divided.computing(0):
            found = parts.model(x)
        assert found.dtype is kind
        wanted = model(x)
    torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_dropout_goes_by_the_seed_of_the_step_and_the_call() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(84, 4)).double()
    x = torch.ones(4, *SAMPLE, dtype=torch.float64)
    with in_parts(model, 2, SAMPLE) as parts:
        found = []
        for seed in (7, 8, 7):
            with parts.divided.computing(seed):
                found.append((parts.model(x).detach(), parts.model(x).detach()))
    assert not found[0][0].equal(found[0][1])
    assert not found[0][0].equal(found[1][0])
    assert found[0][0].equal(found[2][0])
    assert found[0][1].equal(found[2][1])


def test_a_partition_is_sent_samples_and_no_parameters() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(84, 40)).double()
    with in_parts(model, 4, SAMPLE) as parts:
        for _ in range(2):
            with parts.divided.computing(0):
                parts.model(torch.zeros(1, *SAMPLE, dtype=torch.float64))
        sent = parts.parts[0].peers.traffic.nbytes
    # Twice the sample to each of three.
    assert sent == 2 * 3 * 84 * 8


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
        in_parts(model, 2, SAMPLE) as parts,
        parts.divided.computing(0),
        pytest.raises(ValueError, match=said),
    ):
        parts.model(x)


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        (Replicas(given_partitions=6), r"spec.replicas.partitions: 6: layer 5: 5 outputs cannot"),
        (Replicas(grid="3x2"), r"spec.replicas.grid: 3x2: layer 5: 5 outputs cannot"),
    ],
)
def test_what_cannot_be_divided_names_the_layer(replicas: Replicas, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        Division(a_model(), replicas, SAMPLE, CPU).planned(0)
