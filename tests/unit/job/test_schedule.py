"""The rate by samples: beside the schedulers of PyTorch, at its joints, and within its bounds."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from builders.jobs import a_job
from disttrain.job import defaults
from disttrain.job.finding import InvalidManifest
from disttrain.job.length import UNKNOWN, Extent, Length
from disttrain.job.schedule import Schedule
from disttrain.job.schedule_kinds import (
    Constant,
    Cosine,
    DecayShape,
    Exponential,
    InverseRoot,
    Linear,
    LinearWarmup,
    ScheduleKind,
    Steps,
    Warmup,
    WarmupStableDecay,
)
from disttrain.job.spec import DistTrainJob

BATCH, STEPS = 8, 200
RUN = Extent(samples=BATCH * STEPS, epoch=BATCH * 50)
"""Four epochs of 50 steps."""
ROUNDING = 1e-15
patient = settings(deadline=None, max_examples=150)


@pytest.mark.parametrize(
    ("kind", "samples", "expected"),
    [
        ({"constant": Constant()}, 10**9, 1.0),
        ({"linear_warmup": LinearWarmup(samples=100)}, 0, 0.0),
        ({"linear_warmup": LinearWarmup(samples=100)}, 25, 0.25),
        ({"linear_warmup": LinearWarmup(samples=100)}, 1000, 1.0),
        ({"steps": Steps(at_samples=(10, 20), factor=0.5)}, 9, 1.0),
        ({"steps": Steps(at_samples=(10, 20), factor=0.5)}, 10, 0.5),
        ({"steps": Steps(at_samples=(10, 20), factor=0.5)}, 20, 0.25),
        ({"cosine": Cosine(samples=100)}, 0, 1.0),
        ({"cosine": Cosine(samples=100)}, 50, 0.5),
        ({"cosine": Cosine(samples=100, final_fraction=0.2)}, 100, 0.2),
        ({"cosine": Cosine(samples=100, final_fraction=0.2)}, 500, 0.2),
        ({"cosine": Cosine(samples=110, warmup_samples=10)}, 5, 0.5),
        ({"cosine": Cosine(samples=110, warmup_samples=10)}, 60, 0.5),
    ],
)
def test_what_is_given_in_samples_needs_no_run(
    kind: dict[str, ScheduleKind], samples: int, expected: float
) -> None:
    assert Schedule(**kind).rates(UNKNOWN)(samples) == pytest.approx(expected)  # type: ignore[arg-type]  # Each by its name.


def in_sequence(first: LRScheduler, second: LRScheduler, steps: int) -> LRScheduler:
    return lr_scheduler.SequentialLR(first.optimizer, [first, second], [steps])


REFERENCES: dict[str, tuple[Schedule, Callable[[torch.optim.Optimizer], LRScheduler]]] = {
    "warm-up from a fraction": (
        Schedule(warmup=Warmup(fraction=0.25, from_fraction=0.1), constant=Constant()),
        lambda optimizer: lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=50),
    ),
    "steps by epochs": (
        Schedule(steps=Steps(at_epochs=(1, 2.5), factor=0.3)),
        lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [50, 125], gamma=0.3),
    ),
    "cosine to the end": (
        Schedule(cosine=Cosine(final_fraction=0.05)),
        lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=0.05 * 0.4),
    ),
    "warm-up by epochs, then cosine": (
        Schedule(warmup=Warmup(epochs=0.5, from_fraction=0.2), cosine=Cosine()),
        lambda optimizer: in_sequence(
            lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=25),
            lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 25),
            25,
        ),
    ),
    "linear": (
        Schedule(linear=Linear(final_fraction=0.1)),
        lambda optimizer: lr_scheduler.LinearLR(optimizer, 1.0, 0.1, STEPS),
    ),
    "exponential": (
        Schedule(exponential=Exponential(factor=0.3, per=Length(epochs=1))),
        lambda optimizer: lr_scheduler.ExponentialLR(optimizer, gamma=0.3 ** (1 / 50)),
    ),
    "warm-up by a fraction, then exponential": (
        Schedule(
            warmup=Warmup(fraction=0.25),
            exponential=Exponential(factor=0.5, per=Length(fraction=0.125)),
        ),
        lambda optimizer: LambdaLR(
            optimizer, lambda step: min(step / 50, 0.5 ** (max(0, step - 50) / 25))
        ),
    ),
    "inverse root": (
        Schedule(warmup=Warmup(samples=40 * BATCH), inverse_root=InverseRoot()),
        lambda optimizer: LambdaLR(
            optimizer, lambda step: min(step / 40, (40 / max(step, 1)) ** 0.5)
        ),
    ),
    "warm-up, stable, decay": (
        Schedule(
            warmup=Warmup(samples=20 * BATCH),
            warmup_stable_decay=WarmupStableDecay(decay=Length(fraction=0.2), final_fraction=0.1),
        ),
        lambda optimizer: LambdaLR(
            optimizer, lambda step: min(step / 20, 1.0, 0.1 + 0.9 * (STEPS - step) / 40)
        ),
    ),
    "decay by a root": (
        Schedule(
            warmup_stable_decay=WarmupStableDecay(
                decay=Length(epochs=2), shape=DecayShape.ONE_MINUS_ROOT
            )
        ),
        lambda optimizer: LambdaLR(optimizer, lambda step: 1.0 - (max(0, step - 100) / 100) ** 0.5),
    ),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_the_rate_is_that_of_pytorchs_scheduler(name: str) -> None:
    schedule, reference = REFERENCES[name]
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=0.4)
    scheduler, factor = reference(optimizer), schedule.rates(RUN)
    for step in range(STEPS):
        assert 0.4 * factor(step * BATCH) == pytest.approx(
            optimizer.param_groups[0]["lr"], rel=1e-12, abs=1e-13
        )
        optimizer.step()
        scheduler.step()


def test_samples_epochs_and_a_fraction_give_the_same_bits() -> None:
    lengths = ({"samples": 400}, {"epochs": 1.0}, {"fraction": 0.25})
    found = {
        tuple(
            map(
                Schedule(
                    warmup=Warmup(**length),
                    warmup_stable_decay=WarmupStableDecay(decay=Length(**length)),
                ).rates(RUN),
                range(BATCH * STEPS + 9),
            )
        )
        for length in lengths
    }
    assert len(found) == 1


SHAPES: list[Callable[[float], Schedule]] = [
    lambda final: Schedule(warmup=Warmup(samples=1), cosine=Cosine(final_fraction=final)),
    lambda final: Schedule(warmup=Warmup(samples=1), linear=Linear(final_fraction=final)),
    *(
        lambda final, shape=shape: Schedule(
            warmup=Warmup(samples=1),
            warmup_stable_decay=WarmupStableDecay(
                decay=Length(fraction=0.5), shape=shape, final_fraction=final
            ),
        )
        for shape in DecayShape
    ),
]


@patient
@given(
    shape=st.sampled_from(SHAPES),
    run=st.integers(10, 5000),
    warmup=st.integers(1, 2500),
    first=st.floats(0, 1),
    final=st.floats(0, 1),
)
def test_the_rate_is_exact_at_its_joints_and_within_its_bounds(
    shape: Callable[[float], Schedule], run: int, warmup: int, first: float, final: float
) -> None:
    assume(2 * warmup < run)
    beginning = Warmup(samples=warmup, from_fraction=first)
    extent = Extent(samples=run, epoch=7)
    factor = shape(final).model_copy(update={"warmup": beginning}).rates(extent)
    assert (factor(0), factor(warmup), factor(run), factor(2 * run)) == (first, 1.0, final, final)
    rates = [factor(samples) for samples in range(run + 3)]
    changes = [after - before for before, after in pairwise(rates)]
    assert min(changes[:warmup]) >= -ROUNDING
    assert max(changes[warmup:]) <= ROUNDING
    assert min(first, final) <= min(rates) <= max(rates) == 1.0
    # No jump: the steepest is a root's beginning.
    steepest = max(1.0 / warmup, (2.0 / (run - warmup)) ** 0.5, 4.0 / (run - warmup))
    assert max(map(abs, changes)) <= steepest + ROUNDING


@patient
@given(percent=st.integers(1, 99), run=st.integers(1, 100) | st.integers(1, 10**12))
def test_a_warm_up_and_a_decay_that_are_the_whole_run_fit_into_it(percent: int, run: int) -> None:
    schedule = Schedule(
        warmup=Warmup(fraction=percent / 100),
        warmup_stable_decay=WarmupStableDecay(decay=Length(fraction=(100 - percent) / 100)),
    )
    extent = Extent(samples=run, epoch=1, counts_epochs=True)
    assert schedule.problem_in(extent) is None
    factor, grown = schedule.rates(extent), run * percent / 100
    assert (factor(0), factor(run)) == (0.0, 0.0)
    assert (factor(grown / 2), factor(grown)) == pytest.approx((0.5, 1.0))


def a_scheduled_job(schedule: str, stop: str) -> DistTrainJob:
    return a_job(
        "spec.strategy.downpour.optimizer={sgd: {learningRate: 0.1}}",
        f"spec.strategy.downpour.optimizer.sgd.schedule={schedule}",
        f"spec.stop={stop}",
    )


@pytest.mark.parametrize(
    ("schedule", "stop", "expected"),
    [
        (
            "{warmup: {epochs: 3}, constant: {}}",
            "{epochs: 2}",
            "warmup is 3 epochs, longer than the run; take a shorter one",
        ),
        (
            "{warmup: {samples: 900}, cosine: {samples: 800}}",
            "{samples: 1000}",
            "warmup is 900 samples, but the rate falls before the end of 800 samples; "
            "take a shorter one",
        ),
        (
            "{warmup: {fraction: 0.5}, warmupStableDecay: {decay: {fraction: 0.6}}}",
            "{epochs: 5}",
            "warmupStableDecay.decay is 0.6 of the run after a warmup of 0.5 of the run, longer "
            "than the run; take less",
        ),
        (
            "{warmupStableDecay: {decay: {epochs: 6}}}",
            "{epochs: 5}",
            "warmupStableDecay.decay is 6 epochs, longer than the run; take less",
        ),
        (
            "{warmup: {fraction: 0.1}, inverseRoot: {}}",
            "{seconds: 5}",
            "warmup goes by 0.1 of the run, whose samples nothing limits; set spec.stop.epochs, "
            "samples or steps, or say the length in samples or epochs",
        ),
        (
            "{linear: {}}",
            "{seconds: 5}",
            "linear goes by the run, whose samples nothing limits; set spec.stop.epochs, "
            "samples or steps, or say the length in samples or epochs",
        ),
        (
            "{exponential: {factor: 0.5, per: {fraction: 0.1}}}",
            "{seconds: 5}",
            "exponential.per goes by 0.1 of the run, whose samples nothing limits; set "
            "spec.stop.epochs, samples or steps, or say the length in samples or epochs",
        ),
        (
            "{inverseRoot: {}}",
            "{epochs: 5}",
            "inverseRoot falls by the length of a warm-up; set warmup beside it, as "
            "{fraction: 0.05}",
        ),
        (
            "{warmup: {samples: 500}, steps: {atSamples: [400]}}",
            "{epochs: 5}",
            "warmup is 500 samples, but the rate falls before the end of 400 samples; "
            "take a shorter one",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_into_the_run_is_refused(
    schedule: str, stop: str, expected: str
) -> None:
    with pytest.raises(InvalidManifest) as raised:
        a_scheduled_job(schedule, stop)
    (finding,) = raised.value.findings
    assert str(finding) == f"spec.strategy: downpour.optimizer.sgd.schedule.{expected}"


@pytest.mark.parametrize(
    "schedule",
    [
        "{warmup: {samples: 900}, cosine: {}}",
        "{linearWarmup: {samples: 900}}",
        "{warmup: {fraction: 1.0}, constant: {}}",
    ],
)
def test_what_only_the_data_can_tell_is_no_mistake_yet(schedule: str) -> None:
    job = a_job(
        f"spec.strategy.downpour.optimizer={{sgd: {{learningRate: 0.1, schedule: {schedule}}}}}"
    )
    assert job.spec.strategy.only_downpour.optimizer.rule.schedule.beginning is not None


def test_the_data_tells_that_a_warm_up_is_longer_than_the_run() -> None:
    job = a_scheduled_job("{warmup: {samples: 900}, cosine: {}}", "{epochs: 2}")
    assert defaults.problem_with_data(job.spec, job.spec, 450) == (
        "spec.strategy.downpour.optimizer.sgd.schedule.warmup is 900 samples, but the rate falls "
        "before the end of the run; take a shorter one; the training data has 450 samples"
    )
    assert defaults.problem_with_data(job.spec, job.spec, 451) is None


def test_a_schedule_is_not_asked_before_its_run_is_known() -> None:
    with pytest.raises(ValueError, match="the run is asked for before the size of the data"):
        Schedule(linear=Linear()).rates(UNKNOWN)
