"""What the coordinator serves of a job, as a scraper sees it."""

import math

import pytest

from builders import scraping
from builders.machines import Machine
from disttrain.coordinator.journal.state import Evaluation
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.job.roles import Durability
from disttrain.transport.header import Role


def page(machine: Machine) -> str:
    served = ServedMetrics("127.0.0.1:0")
    served.update(machine.coordinator, machine.now, dropped={})
    return scraping.scraped(served.address)


def test_exactly_the_phase_of_the_job_is_one() -> None:
    machine = Machine()
    assert 'disttrain_job_phase{phase="Waiting"} 1.0' in page(machine)

    machine.running()

    text = page(machine)
    assert 'disttrain_job_phase{phase="Running"} 1.0' in text
    assert scraping.total(text, "disttrain_job_phase") == 1


def test_a_shard_that_is_away_is_missing_from_those_that_are_wanted() -> None:
    machine = Machine(shards=2)
    machine.member(Role.SHARD, 0, "s0")

    text = page(machine)

    assert 'disttrain_members{role="shard"} 1.0' in text
    assert "disttrain_shards_wanted 2.0" in text


def test_it_tells_since_when_training_is_in_no_checkpoint() -> None:
    machine = Machine(checkpoint_seconds=20.0)
    assert math.isnan(safe_since(machine))

    machine.running()
    assert safe_since(machine) == machine.state.began

    machine.tick(21.0)
    machine.obey()
    assert safe_since(machine) == machine.now


@pytest.mark.parametrize(
    ("durability", "seconds"), [(Durability.CHECKPOINT, 60.0), (Durability.NONE, math.inf)]
)
def test_a_job_without_checkpoints_has_an_infinite_interval(
    durability: Durability, seconds: float
) -> None:
    machine = Machine(checkpoint_seconds=60.0, durability=durability)

    assert scraping.total(page(machine), "disttrain_job_checkpoint_interval_seconds") == seconds


def test_the_bound_of_staleness_grows_with_the_replicas_that_live() -> None:
    machine = Machine(staleness_bound=8)
    alone = scraping.total(page(machine), "disttrain_staleness_bound_updates")
    machine.running()

    assert alone == 8
    assert scraping.total(page(machine), "disttrain_staleness_bound_updates") == 16


def test_restarts_are_served_before_the_first() -> None:
    text = page(Machine())

    assert 'disttrain_restarts_total{role="shard"} 0.0' in text
    assert 'disttrain_restarts_total{role="replica"} 0.0' in text


def safe_since(machine: Machine) -> float:
    return scraping.total(page(machine), "disttrain_job_checkpoint_timestamp_seconds")


def test_measures_are_those_of_the_latest_evaluation_and_no_more_than_fifty() -> None:
    machine = Machine()
    served = ServedMetrics("127.0.0.1:0")
    counts = []
    for names in (["first"], [f"of_class_{number}" for number in range(60)], ["last"]):
        evaluation = Evaluation(
            epoch=1, samples=10, seconds=1.0, loss=0.5, measures=dict.fromkeys(names, 0.5)
        )
        machine.state.evaluations.append(evaluation)
        served.update(machine.coordinator, machine.now, dropped={})
        lines = scraping.scraped(served.address).splitlines()
        counts.append(sum(line.startswith("disttrain_measure{") for line in lines))
    assert counts == [1, 50, 1]
