"""How a batch method is doing. Pure."""

from typing import Any

from disttrain.coordinator.journal.state import State
from disttrain.job.strategies.sandblaster import lack_of_groups
from disttrain.sandblaster.batch.driver import Stage
from disttrain.sandblaster.method import Progress

Json = dict[str, Any]

WARM_START = "warm_start"
"""The stage before the method's own."""


def warning(groups: int, replicas: int) -> str | None:
    """What is said of a batch with fewer groups than there are replicas; None: it is large enough.

    How many groups all of the data makes is known only here, once it is opened.
    """
    lack = lack_of_groups(groups, replicas)
    return lack and (
        f"a batch {lack}; take a smaller portionSize or pushEveryPortions in "
        "spec.strategy.sandblaster, or fewer replicas"
    )


def batch(state: State) -> Json | None:
    """Everything that is told of it; None before anything is known, and for other strategies."""
    found = state.batch
    if found is None:
        return None if state.warm_start.samples is None else _warm_start(state)
    run = found.course
    progress = run.method.progress
    search = run.method.search
    return {
        "iteration": progress.iteration,
        "evaluation": run.evaluation.number,
        "evaluations": progress.evaluations,
        "objective": progress.loss,
        "gradientNorm": progress.largest,
        "evaluationsPerIteration": progress.evaluations / max(1, progress.iteration),
        "nonFinitePoints": progress.non_finite,
        "step": None if search is None else search.trial,
        "stage": Stage.DONE if state.phase.ended else run.stage,
        "groupsDone": len(run.evaluation.winners),
        "groups": run.evaluation.groups,
        "requeued": found.all_requeued,
        "copies": found.all_copies,
        "returns": found.returns,
        "samplesDropped": found.samples_of_others,
        "end": progress.end,
        "changes": found.changes,
        "warning": warning(found.groups_of_a_batch, state.num_live_replicas),
        "warmStartSamples": state.warm_start.samples,
    }


def _warm_start(state: State) -> Json:
    nothing = (
        *("iteration", "evaluation", "evaluations", "evaluationsPerIteration", "nonFinitePoints"),
        *("groupsDone", "groups", "requeued", "copies", "returns", "samplesDropped"),
    )
    unknown = ("objective", "gradientNorm", "step", "end")
    return {
        **dict.fromkeys(nothing, 0),
        **dict.fromkeys(unknown),
        "stage": WARM_START,
        "changes": [],
        "warning": None,
        "warmStartSamples": state.warm_start.samples,
    }


def accepted(progress: Progress) -> Json:
    return {
        "iteration": progress.iteration,
        "evaluations": progress.evaluations,
        "objective": progress.loss,
        "gradient_norm": progress.largest,
    }
