import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from cifar10 import Cifar10, Photographs, cifar_network, decode
from disttrain import Split


@pytest.fixture(scope="module")
def task() -> Cifar10:
    return Cifar10()


def photographs(task: Cifar10, split: Split) -> Photographs:
    dataset = task.dataset(split)
    assert isinstance(dataset, Photographs)
    return dataset


@pytest.mark.parametrize(("split", "per_class"), [(Split.TRAIN, 200), (Split.TEST, 50)])
def test_the_sample_has_as_many_images_of_each_class(
    task: Cifar10, split: Split, per_class: int
) -> None:
    dataset = photographs(task, split)
    assert dataset.labels.bincount().tolist() == [per_class] * 10
    assert dataset.pixels.shape == (10 * per_class, 3, 32, 32)
    assert dataset.pixels.dtype is torch.uint8


def test_the_files_are_decoded_once(task: Cifar10) -> None:
    first, second = photographs(task, Split.TEST), photographs(Cifar10(), Split.TEST)
    assert first.pixels.data_ptr() == second.pixels.data_ptr()


def test_a_path_is_relative_to_the_task_unless_it_is_absolute() -> None:
    task = Cifar10(train="a.parquet", test="/b.parquet")
    assert task.files["train"].parent.name == "cifar10"
    assert task.files["test"] == Path("/b.parquet")


def test_an_image_file_becomes_its_pixels() -> None:
    pixels = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    assert np.array_equal(decode(file.getvalue()), pixels)


def test_what_is_no_image_is_refused() -> None:
    with pytest.raises(OSError, match="cannot identify image file"):
        decode(b"GIF89a" + bytes(100))


def test_the_network_is_ccpcpcpfff() -> None:
    letters = {nn.Conv2d: "C", nn.MaxPool2d: "P", nn.Linear: "F"}
    network = cifar_network()
    assert "".join(letters.get(type(layer), "") for layer in network.children()) == "CCPCPCPFFF"
    shapes = [tuple(value.shape) for value in network.parameters() if value.dim() > 1]
    assert shapes == [
        *[(32, 3, 3, 3), (32, 32, 3, 3), (64, 32, 3, 3), (64, 64, 3, 3)],
        *[(256, 1024), (128, 256), (10, 128)],
    ]


def test_the_layout_of_memory_does_not_change_the_scores(task: Cifar10) -> None:
    pixels = photographs(task, Split.TEST).pixels[:4]
    scores: list[Tensor] = []
    for channels_last in (True, False):
        torch.manual_seed(0)
        scores.append(cifar_network(channels_last=channels_last)(pixels))
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-5)


def test_the_data_are_left_as_bytes_by_the_network(task: Cifar10) -> None:
    dataset = photographs(task, Split.TEST)
    before = dataset.pixels[:4].clone()
    normalised = next(task.model().children())(dataset.pixels)
    assert torch.equal(dataset.pixels[:4], before)
    assert abs(float(normalised.mean())) < 0.1
    assert abs(float(normalised.std()) - 1) < 0.1
