"""How many leases a replica may have open between two pushes."""

import pytest

from builders.jobs import a_job
from disttrain.coordinator import strategies
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.strategies.local_steps import LocallyStepping


def test_who_diverges_is_told_the_field_of_the_rate() -> None:
    job = a_job("spec.strategy.downpour=null", "spec.strategy.localSteps={}")
    (side,) = strategies.stages(job.spec)

    assert side.settings.rate_field == "optimizer.arguments.lr"


@pytest.mark.parametrize(("steps", "portion"), [(1, 8), (500, 8), (500, 800), (3, 64)])
def test_a_replica_never_runs_out_of_leases_before_it_pushes(steps: int, portion: int) -> None:
    job = a_job(
        "spec.strategy.downpour=null",
        f"spec.strategy.localSteps={{steps: {steps}}}",
        "spec.batchSize=8",
    )
    (side,) = strategies.stages(job.spec)
    assert isinstance(side, LocallyStepping)
    data = DataLedger(samples=10**6, portion_size=portion, batch_size=8)

    assert side.most_open(data) * portion > 2 * steps * 8
