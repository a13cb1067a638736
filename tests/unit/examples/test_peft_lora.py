"""A model that PEFT has adapted: what travels, how it learns, and that PEFT reads the export."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from builders.small_language import SIZES, a_base
from disttrain import Split
from disttrain.job.spec import FrozenParameters
from disttrain.replica import model_tensors
from disttrain.replica.flat_model import FlatModel
from disttrain.transport.memory import OrdinaryMemory

OWN = FrozenParameters.OWN


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return a_base(tmp_path)


def a_task(base: Path) -> Any:
    from peft_lora import PeftLora  # noqa: PLC0415  It imports PEFT.

    return PeftLora(str(base), rank=3, **SIZES)


def test_the_frozen_base_is_in_no_vector(base: Path) -> None:
    model = a_task(base).model()
    layout = model_tensors.describe(model, frozen=OWN).layout

    assert {each.name.rpartition(".lora_")[2] for each in layout.tensors} == {
        "A.default.weight",
        "B.default.weight",
    }
    elements = sum(each.numel() for each in model.parameters() if each.requires_grad)
    flat = FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=1, frozen=OWN)
    assert sum(each.nbytes for each in flat.values_to_upload().values()) == 4 * elements
    assert elements < sum(each.numel() for each in model.parameters()) / 2


def test_peft_reads_the_adapter_that_a_job_exports(base: Path, tmp_path: Path) -> None:
    import peft  # noqa: PLC0415  It brings transformers, which takes seconds.

    task = a_task(base)
    trained, batch = task.model(), task.collate(task.dataset(Split.TRAIN).__getitems__([0, 1, 2]))
    losses = learn(task, trained, batch)
    assert losses[-1] < losses[0]
    layout = model_tensors.describe(trained, frozen=OWN).layout
    exported, values = tmp_path / "model.safetensors", trained.state_dict()
    safetensors.torch.save_file({each.name: values[each.name] for each in layout.tensors}, exported)

    # As the example's README says.
    adapter = safetensors.torch.load_file(exported)
    again = task.model()
    named = {name.replace(".default.", "."): value for name, value in adapter.items()}
    found = peft.set_peft_model_state_dict(again, named)

    assert found.unexpected_keys == []
    assert named.keys() == peft.get_peft_model_state_dict(again).keys()
    assert again(batch[0]).equal(trained(batch[0]))
    assert not task.model()(batch[0]).equal(trained(batch[0]))


def learn(task: Any, model: torch.nn.Module, batch: list[Tensor]) -> list[float]:
    wanted = [each for each in model.parameters() if each.requires_grad]
    optimizer, losses = torch.optim.SGD(wanted, lr=1.0), list[float]()
    for _ in range(20):
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
