"""What shards and replicas of a running job tell whoever scrapes them."""

from functools import partial
from itertools import product
from pathlib import Path

import pytest

from builders import scraping
from builders.runs import RunningJob
from tasks.counting import BLOCK, STEPS_BEFORE_THE_GATE

SHARDS = ("shard-0", "shard-1")
DOWNPOUR = "spec.strategy.downpour"
SAMPLES = 1024
TRAINED_BYTES = 4 * (SAMPLES + 2 * BLOCK)
"""Of one gradient of `CountingOnABase`."""
PREDICTION = (
    "spec.task.entrypoint=proving:Proving",
    f"{DOWNPOUR}.optimizer={{momentum: {{learningRate: 0.01, momentum: 0.5}}}}",
    f"{DOWNPOUR}.staleness.predict={{}}",
    "spec.audit=summary",
    "spec.stop.epochs=1000000",
)
OF_PREDICTIONS = ("disttrain_mean_staleness_updates", "disttrain_prediction_error_ratio")
ARGUMENTS = "spec.task.arguments"
ADAPTER = (
    "spec.task.entrypoint=counting:CountingOnABase",
    "spec.task.frozen=own",
    f"{DOWNPOUR}.optimizer={{momentum: {{learningRate: 0.001, momentum: 0.5}}}}",
    f"{DOWNPOUR}.maxInFlight=0",
    "spec.replicas.count=1",
    "spec.stop.epochs=1",
)


class Pages:
    """Of each process of a job, by its name."""

    def __init__(self, job: RunningJob) -> None:
        self._addresses = scraping.addresses(job.status())

    def total(self, series: str, *processes: str) -> float:
        """Of these processes."""
        pages = [scraping.scraped(self._addresses[process]) for process in processes]
        return sum(scraping.total(page, series) for page in pages)

    def by_replica(self, shard: str, series: str) -> dict[str, float]:
        page = scraping.scraped(self._addresses[shard])
        return {each.labels["replica"]: each.value for each in scraping.samples(page, series)}


def test_each_shard_tells_what_a_prediction_goes_by_and_how_far_it_misses(tmp_path: Path) -> None:
    with RunningJob(tmp_path, PREDICTION) as job:
        job.wait_until(lambda status: status.get("liveReplicas") == 2)
        pages = Pages(job)

        def is_told(shard: str, series: str, _: object) -> bool:
            told = pages.by_replica(shard, series)
            return told.keys() == {"0", "1"} and min(told.values()) > 0

        for shard, series in product(SHARDS, OF_PREDICTIONS):
            job.wait_until(partial(is_told, shard, series), timeout=120.0)
        job.interrupt()
        job.wait()
        job.assert_promises_held()


@pytest.mark.parametrize(("remedy", "vectors"), [("", 1), ("predict", 1), ("delayCompensation", 2)])
def test_bytes_of_an_adapter_are_those_of_what_is_trained(
    tmp_path: Path, remedy: str, vectors: int
) -> None:
    """Nothing of the frozen base is sent, a prediction costs nothing, a compensation a vector."""
    gate, steps = tmp_path / "gate", STEPS_BEFORE_THE_GATE
    # The first one, and that of the step which waits at the gate.
    fetches = steps + 2
    staleness = [f"{DOWNPOUR}.staleness.{remedy}={{}}"] * bool(remedy)
    with RunningJob(tmp_path, [*ADAPTER, *staleness, f"{ARGUMENTS}={{gate: {gate}}}"]) as job:
        job.wait_until(lambda status: status.get("liveReplicas") == 1)
        pages = Pages(job)

        def nothing_moves() -> bool:
            """Until the gate opens."""
            return (
                pages.total("disttrain_push_seconds_count", "replica-0") == steps
                and pages.total("disttrain_fetch_seconds_count", "replica-0") == fetches
                and pages.total("disttrain_updates_applied_total", *SHARDS) == 2 * steps
                and pages.total("disttrain_fetch_bytes_total", *SHARDS) >= fetches * TRAINED_BYTES
            )

        job.wait_until(lambda _: nothing_moves())
        for sides in (("replica-0",), SHARDS):
            pushed = pages.total("disttrain_push_bytes_total", *sides)
            assert pushed == steps * vectors * TRAINED_BYTES
            fetched = pages.total("disttrain_fetch_bytes_total", *sides)
            assert fetched == fetches * TRAINED_BYTES
        gate.touch()
        assert job.wait() == 0
        job.assert_promises_held()
