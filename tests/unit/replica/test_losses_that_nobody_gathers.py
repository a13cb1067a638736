"""Losses that all partitions of a job's model find together, beside the same in one process."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.divided_models import InParts, assert_close, gradients, in_parts
from disttrain.parallel import (
    L2Pool2d,
    LocalContrastNorm2d,
    ReconstructionTarget,
    UnitFilters2d,
    cross_entropy,
    divided,
    one_vs_all,
    reconstruction_losses,
)
from disttrain.replica.evaluation import one_forward
from disttrain.task.task import Split

IMAGES, CLASSES = (3, 14, 13), 7


def classifier(classes: int = CLASSES) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(144, classes),
    ).double()


def stacks() -> nn.Sequential:
    torch.manual_seed(3)

    def stack(channels: int, size: tuple[int, int]) -> nn.Sequential:
        filters = UnitFilters2d(channels, 2, 4, input_size=size, stride=2, block=2)
        pool, contrast = L2Pool2d(3, 1, 1, eps=1e-4), LocalContrastNorm2d(3)
        return nn.Sequential(ReconstructionTarget(0.7), filters, pool, contrast)

    return nn.Sequential(stack(3, (14, 13)), stack(2, (12, 10))).double()


def images() -> Tensor:
    return torch.randn(6, *IMAGES, dtype=torch.float64)


def labels() -> Tensor:
    """One sample has none."""
    return torch.tensor([0, 6, -100, 3, 1, 6], dtype=torch.int32)


def of_classes(model: nn.Module, x: Tensor) -> Tensor:
    return cross_entropy(divided(model, x), labels())


def of_each_class(model: nn.Module, x: Tensor) -> Tensor:
    return one_vs_all(divided(model, x), labels())


def of_both(model: nn.Module, x: Tensor) -> Tensor:
    """A call of each kind, and the whole output, whose weights are not 1."""
    found = 3 * of_classes(model, x) - 0.5 * of_each_class(model, x.flip(-1))
    whole: Tensor = model(x)
    return found + whole.square().mean()


def of_samples(model: nn.Module, x: Tensor) -> Tensor:
    """Of a loss's gradient, as who makes adversarial examples."""
    x.requires_grad_()
    (found,) = torch.autograd.grad(of_classes(model, x), x)
    return of_classes(model, (x + 0.1 * found.sign()).detach())


def of_stacks(model: nn.Module, x: Tensor) -> Tensor:
    one, other = reconstruction_losses(model, x)  # type: ignore[arg-type]
    return one + 2 * other


def of_the_second_stack(model: nn.Module, x: Tensor) -> Tensor:
    (found,) = reconstruction_losses(model, x, sparsity=0.3, first=1)  # type: ignore[arg-type]
    return found


def of_the_first_stack(model: nn.Module, x: Tensor) -> Tensor:
    (found,) = reconstruction_losses(model, x, last=0)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("partitions", [2, 3])
@pytest.mark.parametrize(
    ("make", "loss"),
    [
        (classifier, of_classes),
        (classifier, of_each_class),
        (classifier, of_both),
        (classifier, of_samples),
        (stacks, of_stacks),
        (stacks, of_the_first_stack),
        (stacks, of_the_second_stack),
    ],
)
def test_losses_and_gradients_are_those_of_one_process(
    make: Callable[[], nn.Sequential], loss: Callable[[nn.Module, Tensor], Tensor], partitions: int
) -> None:
    model = make()
    alone = copy.deepcopy(model)
    torch.manual_seed(2)
    with in_parts(model, partitions, IMAGES) as parts:
        for step in range(2):
            x = images()
            with parts.divided.computing(step):
                found = loss(parts.model, x.clone())
            found.backward()  # type: ignore[no-untyped-call]
            wanted = loss(alone, x.clone())
            wanted.backward()  # type: ignore[no-untyped-call]

            torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
            assert_close(_where_trained(parts.gradients(), alone), gradients(alone))
            torch.testing.assert_close(parts.values(), dict(alone.state_dict()))


def _where_trained(found: dict[str, Tensor | None], model: nn.Module) -> dict[str, Tensor | None]:
    """A part that nothing asks for is none, or 0, as its strategy wants it."""
    without = {name for name, each in gradients(model).items() if each is None}
    assert all(found[name] is None or not found[name].any() for name in without)  # type: ignore[union-attr]
    return {name: None if name in without else each for name, each in found.items()}


@pytest.mark.parametrize(
    ("make", "loss"), [(classifier, of_classes), (classifier, of_each_class), (stacks, of_stacks)]
)
def test_evaluations_find_them_without_gradients(
    make: Callable[[], nn.Sequential], loss: Callable[[nn.Module, Tensor], Tensor]
) -> None:
    model, x = make().eval(), images()
    with torch.no_grad():
        wanted = loss(model, x)
        with in_parts(copy.deepcopy(model), 2, IMAGES) as parts:
            parts.model.eval()
            computing = parts.divided.evaluating(parts.model, Split.TEST)
            with computing(range(len(x))), one_forward(parts.model):
                found = loss(parts.model, x)

    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def _sent(parts: InParts) -> int:
    return sum(each.peers.traffic.nbytes for each in parts.parts)


def test_nobody_is_sent_the_output() -> None:
    """Both ways the whole output sends the other partition's half, and its gradient."""
    classes = 2000
    half = len(images()) * classes // 2 * 8
    with in_parts(classifier(classes), 2, IMAGES) as parts:
        sent = []
        for step, loss in enumerate((of_classes, of_the_whole)):
            before = _sent(parts)
            with parts.divided.computing(step):
                loss(parts.model, images()).backward()  # type: ignore[no-untyped-call]
            parts.gradients()
            sent.append(_sent(parts) - before)

    assert sent[1] - sent[0] == 2 * half


def of_the_whole(model: nn.Module, x: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), labels().long())


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (classifier, lambda model, x: cross_entropy(divided(model, x), labels()[:5]), r"\(6,\)"),
        (classifier, lambda model, x: cross_entropy(divided(model, x), labels() + 1), "below 7"),
        (classifier, lambda model, x: one_vs_all(divided(model, x), x[:, 0, 0, 0]), "whole number"),
        (stacks, of_classes, "end the model with a Linear"),
        (classifier, of_stacks, "no stack from 0"),
        (stacks, lambda model, x: reconstruction_losses(model, x, first=2), "no stack from 2"),
        (
            stacks,
            lambda model, x: reconstruction_losses(model, x[:, :, 1:]),
            "takes samples of one",
        ),
    ],
)
def test_what_has_no_such_loss_is_refused_before_anybody_computes(
    make: Callable[[], nn.Sequential], wrong: Callable[[nn.Module, Tensor], object], message: str
) -> None:
    model = make()
    with in_parts(model, 2, IMAGES) as parts, parts.divided.computing(0):
        with pytest.raises(ValueError, match=message):
            wrong(parts.model, images())
        assert not _sent(parts)
        # All are in step as before.
        found: Tensor = parts.model(images())
        assert found.isfinite().all()


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, x: cross_entropy(divided(model, x), labels()[:5]), r"\(6,\)"),
        (lambda model, x: cross_entropy(divided(model, x), labels() + 1), "below 7"),
    ],
)
def test_one_process_refuses_with_the_same_words(
    loss: Callable[[nn.Module, Tensor], Tensor], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        loss(classifier(), images())


def test_under_autocast_sums_over_classes_are_float32() -> None:
    model, x = classifier().float(), images().float()
    alone = copy.deepcopy(model)
    with torch.autocast("cpu", torch.bfloat16):
        wanted = of_classes(alone, x)
        with in_parts(model, 2, IMAGES) as parts, parts.divided.computing(0):
            found = of_classes(parts.model, x)

            found.backward()  # type: ignore[no-untyped-call]
            head = parts.gradients()["4.weight"]
    wanted.backward()  # type: ignore[no-untyped-call]

    assert found.dtype is torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(head, gradients(alone)["4.weight"], rtol=0.05, atol=1e-2)


@pytest.mark.parametrize("loss", [of_classes, of_each_class])
def test_classes_may_lie_whole_on_a_partition(loss: Callable[[nn.Module, Tensor], Tensor]) -> None:
    model, x = classifier(), images()
    alone = copy.deepcopy(model)
    with in_parts(model, 2, IMAGES, whole_on={"4": 1}) as parts:
        with parts.divided.computing(0):
            found = loss(parts.model, x)
        found.backward()  # type: ignore[no-untyped-call]
        wanted = loss(alone, x)
        wanted.backward()  # type: ignore[no-untyped-call]

        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)
        assert_close(parts.gradients(), gradients(alone))


@pytest.mark.parametrize("place", [0, 1])
def test_stacks_that_do_not_lie_divided_are_refused_by_the_layer(place: int) -> None:
    """In one process each has its loss, which nobody is to miss."""
    with in_parts(stacks(), 2, IMAGES, whole_on={"1.2": place}) as parts:
        with parts.divided.computing(0), pytest.raises(ValueError, match=r"layer 1\.2 lies whole"):
            of_stacks(parts.model, images())
        assert not _sent(parts)


def test_labels_may_be_of_a_type_that_has_no_such_number() -> None:
    few, many = torch.tensor([200, 156], dtype=torch.uint8), torch.randn(2, 300)
    found = cross_entropy(many, few)
    assert float(found) == pytest.approx(float(functional.cross_entropy(many, few.long())))
