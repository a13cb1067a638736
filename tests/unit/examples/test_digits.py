import pytest
import torch
from torch.utils.data import DataLoader

from digits import Digits, Images, read_digits
from disttrain import Split


@pytest.fixture(scope="module")
def task() -> Digits:
    return Digits()


def images(task: Digits, split: Split) -> Images:
    dataset = task.dataset(split)
    assert isinstance(dataset, Images)
    return dataset


def test_the_images_are_those_of_scikit_learn() -> None:
    pixels, labels = read_digits()
    assert pixels.shape == (1797, 1, 8, 8)
    assert (float(pixels.min()), float(pixels.max())) == (0, 1)
    assert labels[:10].tolist() == list(range(10))
    assert labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_a_fifth_are_test_images_of_every_class_and_none_is_in_both(task: Digits) -> None:
    train, test = images(task, Split.TRAIN), images(task, Split.TEST)
    assert (len(train), len(test)) == (1437, 360)
    assert test.labels.bincount(minlength=10).min() >= 25
    pixels, labels = read_digits()
    assert torch.equal(test.pixels, pixels[::5])
    assert torch.equal(train.labels[:4], labels[1:5])


def test_a_batch_holds_the_samples_that_were_asked_for(task: Digits) -> None:
    dataset = images(task, Split.TRAIN)
    loader = DataLoader(dataset, batch_size=4, sampler=[5, 0, 9, 2], collate_fn=task.collate)
    (batch,) = loader
    for row, index in enumerate([5, 0, 9, 2]):
        assert torch.equal(batch[0][row], dataset[index][0])
        assert batch[1][row] == dataset[index][1]


def test_the_network_has_the_shape_of_the_readme(task: Digits) -> None:
    shapes = [tuple(value.shape) for value in task.model().parameters() if value.dim() > 1]
    assert shapes == [(16, 1, 3, 3), (32, 16, 3, 3), (64, 512), (10, 64)]


def test_accuracy_is_the_number_of_right_answers(task: Digits) -> None:
    scores = torch.eye(10)[[3, 1, 2]]
    measured = task.measure(torch.nn.Identity(), (scores, torch.tensor([3, 1, 7])))
    assert measured["accuracy"] == 2


def test_one_epoch_of_a_plain_loop_learns_most_digits(task: Digits) -> None:
    torch.manual_seed(0)
    model, dataset = task.model(), images(task, Split.TRAIN)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for batch in DataLoader(dataset, batch_size=32, shuffle=True, collate_fn=task.collate):
        optimizer.zero_grad()
        task.loss(model, batch).backward()  # type: ignore[no-untyped-call]  # Untyped in torch.
        optimizer.step()
    test = images(task, Split.TEST)
    correct = task.measure(model, (test.pixels, test.labels))["accuracy"]
    assert correct / len(test) > 0.8
