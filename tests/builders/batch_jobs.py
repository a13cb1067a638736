"""A job with a batch method on a small convex loss, and what it has to come to."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from builders.batch_problems import Problem, Vector, iterates, shards_of
from disttrain.sandblaster.descent import DescentRules
from disttrain.sandblaster.line_search import WolfeRules
from disttrain.task.task import Split
from oracles.plain_lbfgs import PlainLbfgs
from tasks.convex import Convex

GRADIENT_TOLERANCE = 1e-8

BATCH_JOB = f"""\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {{name: convex}}
spec:
  task: {{entrypoint: convex:Convex}}
  strategy:
    sandblaster:
      precision: float64
      portionSize: 16
      pushEveryPortions: 2
      optimizer:
        lbfgs: {{history: 5, gradientTolerance: {GRADIENT_TOLERANCE:.1e}, changeTolerance: 0}}
  stop: {{iterations: 200}}
  evaluation: null
  audit: full
  checkpoint: {{everySeconds: 0.5}}
  coordinator: {{heartbeatSeconds: 0.2, leaseSeconds: 3, memberTimeoutSeconds: 20}}
  parameterServer: {{shards: 2}}
  replicas: {{count: 2, device: cpu, threads: 1}}
  failurePolicy: {{restartBackoff: {{initialSeconds: 0.1, maxSeconds: 1}}}}
"""


def exported(output: Path) -> dict[str, Tensor]:
    """What a job has come to."""
    return load_file(output / "model.safetensors")


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def flat(values: dict[str, Tensor]) -> Vector:
    """All values, in the model's own order."""
    names = [name for name, _ in Convex().model().named_parameters()]
    return torch.cat([values[name].double().flatten() for name in names]).numpy()


def of_model(name: str, model: nn.Module, loss: Callable[[], Tensor]) -> Problem:
    """A loss as a function of a model's parameters, from where they are."""

    def evaluate(x: Vector) -> tuple[float, Vector]:
        vector_to_parameters(torch.from_numpy(x.copy()), model.parameters())
        model.zero_grad()
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        return value.item(), parameters_to_vector(gradients).numpy().copy()

    start = parameters_to_vector(model.parameters()).detach().numpy().copy()
    return Problem(name, start, evaluate)


def convex_problem(task: Convex) -> Problem:
    """The loss over all of the task's data at once, and where a job of seed 0 begins."""
    torch.manual_seed(0)
    model = task.model().double()
    dataset: Any = task.dataset(Split.TRAIN)
    inputs, labels = dataset.tensors
    return of_model("convex", model, lambda: task.loss(model, (inputs.double(), labels)))


def serial_iterates(penalty: float | None = None, begin: Vector | None = None) -> list[Vector]:
    """The accepted points of textbook L-BFGS on the whole loss, in one process without shards.

    `penalty`: another one than the task's own. `begin`: another point to start at, where nothing
    is known of the loss.
    """
    rules = DescentRules(search=WolfeRules(), gradient_tolerance=GRADIENT_TOLERANCE)
    problem = convex_problem(Convex() if penalty is None else Convex(penalty=penalty))
    if begin is not None:
        problem = replace(problem, start=begin)
    return iterates(PlainLbfgs(rules, history=5), shards_of(problem))


def distance(one: Vector, other: Vector) -> float:
    """Relative to the larger elements."""
    return float(np.max(np.abs(one - other)) / np.max(np.abs(other)))
