"""On the digits network, distributed L-BFGS is as good as PyTorch's."""

import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional

from builders.batch_jobs import of_model
from builders.batch_problems import Problem, fused, iterates, shards_of
from digits import Digits, read_digits


def digits_network(seed: int) -> Problem:
    """The example's network, narrow, on a few of its images, with a small penalty, in float64."""
    torch.manual_seed(seed)
    model = Digits(width=2, hidden=16).model().double()
    pixels, labels = read_digits()
    images, wanted = pixels[:100].double(), labels[:100]

    def loss() -> Tensor:
        penalty = sum((one.square().sum() for one in model.parameters()), start=torch.zeros(()))
        return functional.cross_entropy(model(images), wanted) + 5e-4 * penalty

    return of_model("digits", model, loss)


def torch_losses(problem: Problem, evaluations: int) -> list[float]:
    vector = nn.Parameter(torch.from_numpy(problem.start.copy()))
    optimizer = torch.optim.LBFGS(
        [vector], max_iter=1000, max_eval=evaluations, history_size=10,
        tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe",
    )  # fmt: skip
    losses = []

    def closure() -> float:
        loss, gradient = problem.evaluate(vector.detach().numpy())
        vector.grad = torch.from_numpy(gradient)
        losses.append(loss)
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return losses[:evaluations]


def test_after_as_many_evaluations_the_loss_is_no_higher_than_pytorchs() -> None:
    """Of a network that is not convex one run may end in another minimum: the median of some."""
    ratios = []
    for seed in range(9):
        problem = digits_network(seed)
        engine = shards_of(problem, 2)
        iterates(fused(), engine, evaluations=30)
        theirs = torch_losses(problem, 30)
        assert len(engine.evaluations) == len(theirs) == 30
        ratios.append(min(engine.evaluations) / min(theirs))

    assert statistics.median(ratios) <= 1.05, ratios
