"""Losses and measures in bfloat16, beside a loop that uses torch.autocast itself."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from builders.jobs import a_job
from disttrain.job import defaults
from disttrain.job.finding import InvalidManifest
from disttrain.job.roles import Device
from disttrain.replica import evaluation, task_calls
from disttrain.replica.errors import DeviceTooOld
from disttrain.replica.task_calls import TaskCalls
from disttrain.task.errors import UserCodeError
from disttrain.task.loss import LossContext
from disttrain.task.task import Split, Task


class Noting(nn.Linear):
    """Notes the types of what it returns."""

    def __init__(self) -> None:
        super().__init__(5, 3)
        self.returned: list[torch.dtype] = []

    def forward(self, values: Tensor) -> Tensor:
        found = super().forward(values)
        self.returned.append(found.dtype)
        return found


class Classes(Task):
    def model(self) -> nn.Module:
        return Noting()

    def dataset(self, split: Split) -> Dataset[Any]:
        del split
        draw = torch.Generator().manual_seed(0)
        return TensorDataset(torch.randn(12, 5, generator=draw), torch.arange(12) % 3)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return functional.cross_entropy(model(batch[0]), batch[1])

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        return {"sum": model(batch[0]).float().sum()}


def a_batch(task: Task) -> Any:
    return task.dataset(Split.TRAIN)[:]


def a_model(calls: TaskCalls) -> Noting:
    model = calls.model(seed=1)
    assert isinstance(model, Noting)
    return model


def test_a_step_has_the_bits_of_a_loop_under_autocast_and_gradients_in_single_precision() -> None:
    task = Classes()
    calls = TaskCalls(task, autocasts=True)
    ours, theirs = a_model(calls), a_model(calls)

    calls.loss(ours, a_batch(task), LossContext()).mean.backward()  # type: ignore[no-untyped-call]
    with torch.autocast("cpu", torch.bfloat16):
        loss = task.loss(theirs, a_batch(task))
    loss.backward()  # type: ignore[no-untyped-call]

    assert ours.returned == [torch.bfloat16]
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None
        assert one.grad.dtype is one.dtype is torch.float32
        assert torch.equal(one.grad, other.grad)  # type: ignore[arg-type]  # It is there as well.


def test_an_evaluation_computes_as_the_training_does() -> None:
    task = Classes()
    calls = TaskCalls(task, autocasts=True)
    model = a_model(calls)

    evaluation.evaluate(calls, model, calls.examples(Split.TEST, 6), 6, lambda batch: batch)
    with torch.no_grad():
        calls.measures(model, a_batch(task))

    assert len(model.returned) == 3
    assert set(model.returned) == {torch.bfloat16}


@pytest.mark.parametrize("autocasts", [True, False])
def test_a_tasks_own_autocast_holds(*, autocasts: bool) -> None:
    class Own(Classes):
        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=not autocasts):
                return super().loss(model, batch)

    task = Own()
    calls = TaskCalls(task, autocasts=autocasts)
    model = a_model(calls)

    calls.loss(model, a_batch(task), LossContext())

    assert model.returned == [torch.float32 if autocasts else torch.bfloat16]


class Converting(Classes):
    """numpy has no such numbers."""

    def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
        found = model(batch[0]).detach().numpy().sum(keepdims=True)
        return {"sum": torch.from_numpy(found)}


def test_what_cannot_be_done_in_bfloat16_names_the_field_and_the_remedy() -> None:
    task = Converting()
    calls = TaskCalls(task, autocasts=True)
    with pytest.raises(UserCodeError) as caught:
        calls.measures(a_model(calls), a_batch(task))
    assert "(spec.strategy.downpour.precision): where that cannot be, use" in str(caught.value)


def test_another_error_of_the_task_is_not_taken_for_one_of_precision() -> None:
    class Wrong(Classes):
        def measure(self, model: nn.Module, batch: Any) -> dict[str, Tensor]:
            del model
            return {"sum": batch[2]}

    calls = TaskCalls(Wrong(), autocasts=True)
    with pytest.raises(UserCodeError) as caught:
        calls.measures(a_model(calls), a_batch(Wrong()))
    assert "downpour.precision" not in str(caught.value)


@pytest.mark.parametrize("is_told", [True, False])
def test_a_gpu_that_cannot_is_refused_by_field(
    monkeypatch: pytest.MonkeyPatch, *, is_told: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: not is_told)
    if not is_told:
        assert task_calls.resolve_device(Device.AUTO, autocasts=True).type == "cuda"
        return
    with pytest.raises(DeviceTooOld, match=r"spec\.strategy\.downpour\.precision: .* Tesla V100"):
        task_calls.resolve_device(Device.AUTO, autocasts=True)
    assert task_calls.resolve_device(Device.CPU, autocasts=True).type == "cpu"


def test_a_manifest_says_it_and_the_layout_stays_in_single_precision() -> None:
    spec = a_job("spec.strategy.downpour.precision=bfloat16").spec
    assert defaults.autocasts(spec)
    assert defaults.precision(spec) == "float32"
    assert not defaults.autocasts(a_job().spec)


@pytest.mark.parametrize("field", ["precision", "pushAs", "fetchAs"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_warm_start_computes_and_travels_in_the_methods_numbers(
    field: str, precision: str
) -> None:
    warm_start = f"{{samples: 20, batchSize: 4, downpour: {{{field}: bfloat16}}}}"
    method = f"{{optimizer: {{lbfgs: {{}}}}, portionSize: 8, precision: {precision}}}"
    said = rf"downpour\.{field}: is for strategy\.downpour, got bfloat16; .* are {precision}"
    with pytest.raises(InvalidManifest, match=said):
        a_job(
            f"spec.strategy={{sandblaster: {method}}}",
            f"spec.strategy.sandblaster.warmStart={warm_start}",
            "spec.batchSize=null",
            "spec.stop={iterations: 2}",
        )
