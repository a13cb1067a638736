"""How far predicted parameters are from those that come: figure 3, right, of Sato et al. 2017."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from builders.cifar_runs import MOMENTUM, Case, Data, simulated, task_of
from disttrain.parameter_server.update_rules.predicted_momentum import reach_of
from disttrain.simulation.evaluations import Point
from disttrain.state.vector import SINGLE
from disttrain.task.task import Split

_MOST_AHEAD = 13
_MEASUREMENTS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Means of 100 measurements."""

    seed: int
    staleness: int
    """S0: how many updates came between, of others."""
    distances: Sequence[float]
    """Norm of w(t + S0 + 1) - f_S(w_t), for S = 0, 1 ... 13."""
    unpredicted: float
    """Norm of w(t + S0 + 1) - w_t."""

    @property
    def ratio(self) -> float:
        """What is left of the distance where S is the staleness."""
        return self.distances[self.staleness] / self.unpredicted


def measured(case: Case, data: Data, after_epochs: float, kept: Path) -> Curve:
    """What a file holds of this seed, or else measures and writes there."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    for known in (Curve(**json.loads(line)) for line in lines):
        if known.seed == case.seed:
            return known
    curve = measure(case, data, after_epochs)
    with kept.open("a") as file:
        file.write(json.dumps(asdict(curve)) + "\n")
    return curve


def measure(case: Case, data: Data, after_epochs: float) -> Curve:
    """Looks at parameters and velocity after each update, on one shard."""
    staleness = case.replicas - 1
    spread = staleness + 1
    samples = task_of(data).examples(Split.TRAIN, case.batch).count
    first = round(after_epochs * samples)
    last = first + (_MEASUREMENTS + spread) * case.batch
    run = simulated(case, data, evaluate_every=case.batch, samples=last)
    run.evaluations.next_samples = first
    values = run.shards[0].values.vectors
    velocity = SINGLE.beside("velocity")
    seen: list[tuple[Tensor, Tensor]] = []

    def look(point: Point) -> None:
        del point
        seen.append((values[SINGLE].clone(), values[velocity].clone()))

    run.evaluations.tell = look
    run.run()
    pairs = list(zip(seen, seen[spread:], strict=False))[:_MEASUREMENTS]
    distances = [
        sum(
            float(torch.linalg.vector_norm(later - (w + m * reach_of(MOMENTUM, ahead + 1))))
            for (w, m), (later, _) in pairs
        )
        / len(pairs)
        for ahead in range(_MOST_AHEAD + 1)
    ]
    moved = [float(torch.linalg.vector_norm(later - w)) for (w, _), (later, _) in pairs]
    return Curve(
        seed=case.seed,
        staleness=staleness,
        distances=distances,
        unpredicted=sum(moved) / len(moved),
    )
