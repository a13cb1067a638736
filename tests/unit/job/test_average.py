"""A moving average in a manifest."""

import pytest

from builders.jobs import a_job
from disttrain.job.finding import InvalidManifest


def test_evaluations_take_it_and_replicas_compute_with_the_parameters() -> None:
    found = a_job("spec.strategy.downpour.ema={halfLife: {samples: 500}}").spec.strategy
    assert (found.rule.evaluates, found.rule.computes_on) == ("average", "parameters")
    assert found.only_downpour.vectors == ("average",)
    plain = a_job().spec.strategy
    assert (plain.rule.evaluates, plain.only_downpour.vectors) == ("parameters", ())


@pytest.mark.parametrize(
    ("ema", "said"),
    [
        ("{}", "strategy.downpour.ema.halfLife: required, for example {epochs: 0.5}"),
        ("{halfLife: {}}", "ema.halfLife: must have exactly one of samples, epochs, fraction"),
        ("{halfLife: {samples: 0}}", "ema.halfLife.samples: must be at least 1, got 0"),
        (
            "{halfLife: {fraction: 0.1}}",
            "downpour.ema.halfLife goes by 0.1 of the run, whose samples nothing limits; set "
            "spec.stop.epochs, samples or steps, or say the length in samples or epochs",
        ),
    ],
)
def test_a_half_life_that_nobody_can_know_is_refused(ema: str, said: str) -> None:
    with pytest.raises(InvalidManifest) as raised:
        a_job(f"spec.strategy.downpour.ema={ema}", "spec.stop={seconds: 5}")
    assert any(said in str(finding) for finding in raised.value.findings), raised.value.findings


def test_a_warm_start_of_a_method_keeps_none() -> None:
    warm_start = "{samples: 20, batchSize: 4, downpour: {ema: {halfLife: {samples: 9}}}}"
    with pytest.raises(
        InvalidManifest, match=r"downpour\.ema: is for strategy\.downpour: a method"
    ):
        a_job(
            "spec.strategy={sandblaster: {optimizer: {lbfgs: {}}, portionSize: 8}}",
            f"spec.strategy.sandblaster.warmStart={warm_start}",
            "spec.batchSize=null",
            "spec.stop={iterations: 2}",
        )
