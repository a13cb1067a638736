import pytest

from disttrain.job.schedule import Constant, Cosine, LinearWarmup, Steps
from disttrain.parameter_server.update_rule import schedule_factor


@pytest.mark.parametrize(
    ("rule", "samples", "expected"),
    [
        (Constant(), 10**9, 1.0),
        (LinearWarmup(samples=100), 0, 0.0),
        (LinearWarmup(samples=100), 25, 0.25),
        (LinearWarmup(samples=100), 1000, 1.0),
        (Steps(at_samples=(10, 20), factor=0.5), 9, 1.0),
        (Steps(at_samples=(10, 20), factor=0.5), 10, 0.5),
        (Steps(at_samples=(10, 20), factor=0.5), 20, 0.25),
        (Cosine(samples=100), 0, 1.0),
        (Cosine(samples=100), 50, 0.5),
        (Cosine(samples=100, final_fraction=0.2), 100, 0.2),
        (Cosine(samples=100, final_fraction=0.2), 500, 0.2),
        (Cosine(samples=110, warmup_samples=10), 5, 0.5),
        (Cosine(samples=110, warmup_samples=10), 60, 0.5),
    ],
)
def test_the_rate_by_samples(
    rule: Constant | LinearWarmup | Steps | Cosine, samples: int, expected: float
) -> None:
    assert schedule_factor(rule)(samples) == pytest.approx(expected)
