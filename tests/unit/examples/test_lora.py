from pathlib import Path

import pytest
import safetensors.torch
import torch
from lora import Lora
from torch import nn

from builders.small_language import SIZES, a_base
from disttrain import Split
from disttrain.job.spec import FrozenParameters
from disttrain.replica import model_tensors
from language import Language


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return a_base(tmp_path)


def test_before_the_first_step_it_says_what_the_base_says(base: Path) -> None:
    task = Lora(str(base), **SIZES)
    plain = Language(**SIZES).model()
    plain.load_state_dict(safetensors.torch.load_file(base))
    given = torch.randint(256, (3, 16), dtype=torch.uint8)
    torch.testing.assert_close(task.model()(given), plain(given))


def test_the_adapters_alone_are_trained_and_travel(base: Path) -> None:
    model = Lora(str(base), rank=3, **SIZES).model()
    trained = {name for name, each in model.named_parameters() if each.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"down", "up"}
    linear = [each for each in Language(**SIZES).model().modules() if isinstance(each, nn.Linear)]
    assert len(trained) == 2 * (len(linear) - 1), "all but the scores"
    found = model_tensors.describe(model, frozen=FrozenParameters.OWN)
    assert {spec.name for spec in found.layout.tensors} == trained


def test_both_matrices_learn(base: Path) -> None:
    task = Lora(str(base), **SIZES)
    model, dataset = task.model(), task.dataset(Split.TRAIN)
    batch = task.collate(dataset.__getitems__([0, 1, 2, 3]))  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1.0)
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    changed = {name for name, each in model.named_parameters() if not each.equal(before[name])}
    assert changed == {name for name, each in model.named_parameters() if each.requires_grad}


def test_a_base_of_another_size_is_refused_by_name(base: Path) -> None:
    with pytest.raises(RuntimeError, match=r"size mismatch for places"):
        Lora(str(base), **{**SIZES, "context": 32}).model()
