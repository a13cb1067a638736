from functools import partial
from pathlib import Path
from typing import Any

import draw
import pytest
import selectivity
import torch
from draw import sheet
from PIL import Image
from safetensors.torch import save_file
from selectivity import best_neuron, diagnostic
from torch import Tensor, nn
from whitening import contrast_normalised, read_images

from autoencoder import Autoencoder, autoencoder, first_filters, optimal_stimulus, responses
from disttrain import Split
from disttrain.parallel import Alone, Grid, partition


@pytest.fixture(scope="module")
def task() -> Autoencoder:
    return Autoencoder(channels=4)


def images(task: Autoencoder, count: int) -> Tensor:
    return task.dataset(Split.TEST).__getitems__(list(range(count)))[0]


def correlations(images: Tensor) -> tuple[float, float]:
    """Of neighbours, and of red and green."""
    right = (images[..., 1:] * images[..., :-1]).mean() / images.square().mean()
    colours = (images[:, 0] * images[:, 1]).mean() / images.square().mean()
    return float(right), float(colours)


def measured(task: Autoencoder, model: nn.Module, batch: tuple[Tensor, Tensor]) -> dict[str, float]:
    with torch.no_grad():
        return {name: float(value) for name, value in task.measure(model, batch).items()}


def test_whitening_leaves_neighbours_uncorrelated(task: Autoencoder) -> None:
    found = images(task, 400)[:, :, 4:-4, 4:-4]
    photographs = contrast_normalised(read_images(task.files["test"])[0][:400])

    assert abs(float(found.mean())) < 0.01
    assert min(correlations(photographs)) > 0.8
    assert max(map(abs, correlations(found))) < 0.45


@pytest.mark.parametrize(("samples", "stack"), [(0, 0), (999, 0), (1000, 1), (1001, 1), (5000, 1)])
def test_each_stack_has_its_turn_and_the_last_one_stays(samples: int, stack: int) -> None:
    assert Autoencoder(stack_samples=1000).stack_at(samples) == stack
    assert Autoencoder().stack_at(samples) is None


def test_a_few_steps_reconstruct_better(task: Autoencoder) -> None:
    torch.manual_seed(0)
    model, batch = task.model(), (images(task, 32), torch.zeros(32))
    before = measured(task, model, batch)
    (group,) = task.parameter_groups(model)
    alphas = [model.get_parameter(str(name)) for name in group.parameters]
    filters = [model.get_parameter(f"{stack}.1.weight") for stack in (0, 1)]
    groups: list[dict[str, Any]] = [
        {"params": filters},
        {"params": alphas, "lr": 0.0001 * group.learning_rate},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.0001, momentum=0.9)
    for _ in range(40):
        optimizer.zero_grad()
        task.loss(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    after = measured(task, model, batch)
    assert all(after[name] < 0.9 * before[name] for name in before)


def test_the_model_is_divided_as_a_whole() -> None:
    assert partition(autoencoder(4), Grid(1, 1), Alone(), (3, 32, 32)).notes == ()


def test_the_best_neuron_is_found_by_each_threshold() -> None:
    wanted = torch.tensor([True, False, True, False, False])
    found = torch.tensor([[0.1, 3.0], [0.9, 1.0], [0.2, 2.0], [0.8, 2.5], [0.3, 0.0]])

    neuron, accuracy = best_neuron(found, wanted)
    assert (neuron, accuracy) == (1, 0.8)
    # With a threshold above all, none is taken for the class: as good as guessing.
    assert best_neuron(-wanted[:, None].float(), wanted) == (0, 0.6)


def test_a_distractor_comes_with_each_image() -> None:
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 3, 3])
    assert labels[diagnostic(labels, 1)].tolist() == [1, 1, 1, 0, 2, 0]


def test_the_optimal_stimulus_excites_more_than_photographs(task: Autoencoder) -> None:
    torch.manual_seed(0)
    model = task.model()
    neuron = 26 * 13 + 13
    given = images(task, 20)
    given = given * (3072**0.5 / given.flatten(1).norm(dim=1)[:, None, None, None])

    found = optimal_stimulus(model, neuron, steps=30)

    best = responses(model, found[None])[0, neuron].detach()
    assert float(best) > float(responses(model, given)[:, neuron].detach().max())


def test_filters_are_drawn_beside_each_other() -> None:
    found = sheet(first_filters(autoencoder(4)))
    assert found.shape == (3, 60, 160)
    assert 0 <= float(found.min()) < float(found.max()) <= 1


@pytest.fixture(scope="module")
def smallest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the smallest network."""
    torch.manual_seed(1)
    file = tmp_path_factory.mktemp("export") / "model.safetensors"
    save_file(autoencoder(1).state_dict(), file)
    return file


def test_a_picture_shows_filters_and_below_them_a_stimulus(
    smallest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(draw, "optimal_stimulus", partial(optimal_stimulus, steps=2))

    draw.main(1, smallest, 3, picture)

    with Image.open(picture) as opened:
        assert opened.format == "PNG"
        # Frames of 10 pixels around filters, and one of 34 around the stimulus.
        rows = (opened.height // draw.SCALE - 34) // 10
        assert (opened.width, opened.height) == (
            draw.SCALE * 10 * draw.COLUMNS,
            draw.SCALE * (10 * rows + 34),
        )
        filters = opened.crop((0, 0, opened.width, draw.SCALE * 10 * rows))
        stimulus = opened.crop((0, filters.height, draw.SCALE * 34, opened.height))
        for part in (filters, stimulus):
            assert len(set(part.convert("L").tobytes())) > 50


def test_selectivity_has_a_row_for_each_class(
    smallest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    selectivity.main([f"1={smallest}"])

    title, _, *rows = capsys.readouterr().out.splitlines()
    assert title == "| class | channels | guessing | best untrained neuron | best neuron |"
    assert [row.split(" | ")[:2] for row in rows] == [[f"| {each}", "1"] for each in range(10)]
    for row in rows:
        guess, *best = (float(each.rstrip("% |")) for each in row.split(" | ")[2:])
        assert guess == 50.0
        assert all(50.0 < each <= 100.0 for each in best)
