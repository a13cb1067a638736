"""What a scraper reads of each role: names, labels, meanings and values."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from builders import scraping
from builders.batch_machines import BatchMachine
from builders.machines import Machine
from disttrain.coordinator.journal.state import Evaluation
from disttrain.coordinator.process.served_metrics import ServedMetrics as OfCoordinator
from disttrain.coordinator.protocol.fields import Progress
from disttrain.coordinator.protocol.reports import Predicted, ReplicaReport, ShardReport
from disttrain.parallel.communicator import Traffic
from disttrain.parameter_server.holder_side import BatchFigures
from disttrain.parameter_server.reporting import ServedMetrics as OfShard
from disttrain.replica.client_threads import Transfers
from disttrain.replica.ledger import Ledger
from disttrain.replica.served_metrics import ServedMetrics as OfReplica

GOLDEN = Path(__file__).parent / "pages"
"""Written by prometheus_client's own counters, gauges and histograms."""


class LedgerThatLacksTwo(Ledger):
    def __init__(self) -> None:
        """Without a file."""

    @property
    def missing(self) -> int:
        return 2


def fresh_replica() -> str:
    return OfReplica("127.0.0.1:0").address


def replica() -> str:
    served = OfReplica("127.0.0.1:0")
    served.source = iter([replica_report(3), replica_report(5)]).__next__
    pushes, fetches = Transfers(), Transfers()
    connection: Any = SimpleNamespace(
        pushes=SimpleNamespace(transfers=pushes),
        fetches=SimpleNamespace(transfers=fetches),
        ledger=LedgerThatLacksTwo(),
    )
    served.connection = connection
    served.traffic = Traffic(exposed_seconds=1.25, sum_seconds=0.5)
    pushes.add(0.02, 1000)
    pushes.add(0.3, 1000)
    fetches.add(0.01, 400)
    served.latest_report()
    fetches.add(100.0, 400)
    served.latest_report()
    return served.address


def replica_report(steps: int) -> ReplicaReport:
    return ReplicaReport(
        progress=Progress(samples=steps * 32),
        steps=steps,
        loss_sum=steps * 0.5,
        loss_steps=steps,
        non_finite=steps // 3,
        staleness=(steps, 2, 0, steps, *[0] * 28, 1, 0, 3),
        compute_seconds=steps * 2.0,
        data_seconds=steps * 0.5,
        push_seconds=0.25,
        fetch_seconds=steps * 0.125,
    )


def fresh_shard() -> str:
    return OfShard("127.0.0.1:0").address


def shard() -> str:
    served = OfShard("127.0.0.1:0")
    served.checkpoint_seconds.observe(1.2)
    served.blocking_seconds.observe(0.004)
    served.checkpoint_failures = 1
    for number in (1, 4):
        served.incarnation = 2
        served.dropped = Counter(a=number, b=1)
        served.missing = number
        served.batch = BatchFigures(
            staged_bytes=100 - number, commands=number, command_seconds=number * 0.5
        )
        served.pushed_bytes += 100
        served.fetched_bytes += 50
        served.at_risk = 3
        served.mean_staleness = {"2": 1.5}
        served.report = ShardReport(
            version=10 + number,
            applied=number,
            refused={"fenced": number},
            staleness=(number, 0, 1),
            busy_seconds=number * 0.25,
            rate=0.5 / number,
            predicted={"2": Predicted(mean_staleness=1.5, error=0.25)},
        )
        served.update()
    return served.address


def coordinator() -> str:
    machine, served = Machine(checkpoint_seconds=20.0), OfCoordinator("127.0.0.1:0")
    _, first, _ = machine.running()
    served.update(machine.coordinator, machine.now, {})
    machine.state.evaluations.append(
        Evaluation(
            epoch=1, samples=10, seconds=1.0, loss=0.5, measures={"accuracy": 0.75, "top": 0.5}
        )
    )
    machine.work(first)
    machine.tick(21.0)
    machine.obey()
    machine.reach(first, 1, 4)
    machine.state.totals.restarts["shard"] = 2
    served.checkpoint_seconds.observe(2.0)
    served.update(machine.coordinator, machine.now, {"foreign": 3})
    return served.address


def coordinator_of_a_batch_method() -> str:
    machine, served = BatchMachine(), OfCoordinator("127.0.0.1:0")
    _, first, second = machine.running()
    for _ in range(2):
        machine.evaluate(first, second)
    machine.batch.copies = 2
    served.update(machine.coordinator, machine.now, {})
    return served.address


PAGES = {
    page.__name__: page
    for page in (
        fresh_replica,
        replica,
        fresh_shard,
        shard,
        coordinator,
        coordinator_of_a_batch_method,
    )
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_it_always_was(name: str) -> None:
    expected = families((GOLDEN / f"{name}.txt").read_text())

    assert families(scraping.scraped(PAGES[name]())) == expected


def families(page: str) -> dict[str, tuple[str, str, dict[str, float]]]:
    """Of each family its kind, what it means, and its series."""
    return {
        family.name: (
            family.type,
            family.documentation,
            {f"{sample.name} {sample.labels}": sample.value for sample in family.samples},
        )
        for family in text_string_to_metric_families(page)
    }
