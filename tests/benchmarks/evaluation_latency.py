"""What an evaluation of a batch costs beside its work: commands, answers, waiting for each other.

Whole jobs in real processes whose portions are timers: 15 portions in 8 groups, two replicas and
two shards. Each evaluation is two commands to every shard; between them groups are asked for,
given, computed, staged and told of. What the shards take and give meanwhile is counted, too.
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parents[1]))

from builders import scraping
from builders.batch_jobs import BATCH_JOB
from builders.report import Bar, print_report
from builders.runs import RunningJob

MOST_SECONDS = 0.05
"""Of an evaluation, beside its work."""
PORTIONS_OF_THE_BUSIEST = 8
"""Of 15 in 8 groups, with two replicas."""
GROUPS, REPLICAS, SHARDS = 8, 2, 2
BYTES_OF_PARAMETERS = (12 * 4 + 4) * 8
"""In float64."""
_ACCEPTED = re.compile(r"^(\S+)Z info coordinator point accepted .*evaluations=(\d+)", re.MULTILINE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few iterations")
    quick = parser.parse_args().quick
    iterations = 5 if quick else 20
    found = {f"portions_of_{ms}_ms": measure(ms / 1000, iterations) for ms in (0, 10)}
    nothing, some = found.values()
    traffic = measure_traffic(evaluations=4 if quick else 15)
    # The looks fall into the middle of evaluations.
    most = 2.0 if quick else 1.2
    bars = [
        Bar("seconds per evaluation of no work", nothing["seconds"], _most(quick), at_least=False),
        Bar("seconds beside 80 ms of work", some["beside_work"], _most(quick), at_least=False),
        Bar("fetches per replica and evaluation", traffic["fetches"], most, at_least=False),
        Bar("pushes per group and evaluation", traffic["pushes"], most, at_least=False),
    ]
    print_report("evaluation_latency", {**found, "traffic": traffic}, bars)


def _most(quick: bool) -> float:  # noqa: FBT001 one flag of the command line
    return 5.0 if quick else MOST_SECONDS


def measure(portion_seconds: float, iterations: int) -> dict[str, Any]:
    """Seconds per evaluation of one job, between the first point accepted and the last."""
    given = [
        f"spec.task.arguments={{portion_seconds: {portion_seconds}}}",
        f"spec.stop.iterations={iterations}",
        "spec.strategy.sandblaster.optimizer.lbfgs.gradientTolerance=0.0",
        "spec.checkpoint.everySeconds=3600",
    ]
    with tempfile.TemporaryDirectory() as folder, RunningJob(Path(folder), given, BATCH_JOB) as job:
        if job.wait() != 0:
            raise RuntimeError(job.printed())
        moments = _ACCEPTED.findall(job.log("coordinator"))
        copies = job.summary()["sandblaster"]["copies"]
    (began, before), (ended, after) = moments[0], moments[-1]
    passed = datetime.fromisoformat(ended) - datetime.fromisoformat(began)
    seconds = passed.total_seconds() / (int(after) - int(before))
    return {
        "seconds": seconds,
        "beside_work": seconds - PORTIONS_OF_THE_BUSIEST * portion_seconds,
        "evaluations": int(after) - int(before),
        "copies": copies,
    }


@dataclass(frozen=True, slots=True)
class Moved:
    """What all shards together have counted so far."""

    evaluations: float
    pushed: float
    fetched: float

    @classmethod
    def until(cls, job: RunningJob, evaluations: float) -> Self:
        """At the first look after so many."""
        status = job.wait_until(_has_done(evaluations))
        addresses = scraping.addresses(status)
        pages = [scraping.scraped(addresses[f"shard-{index}"]) for index in range(SHARDS)]
        commands, pushed, fetched = (
            sum(scraping.total(page, f"disttrain_{name}_total") for page in pages)
            for name in ("vector_commands", "push_bytes", "fetch_bytes")
        )
        return cls(commands / SHARDS / 2, pushed, fetched)


def _has_done(evaluations: float) -> Callable[[dict[str, Any]], bool]:
    return lambda status: (status.get("sandblaster") or {}).get("evaluations", 0) >= evaluations


def measure_traffic(evaluations: int) -> dict[str, Any]:
    """Bytes per evaluation over the wire, without copies; and how often that is all parameters."""
    given = [
        "spec.task.arguments={portion_seconds: 0.02}",
        "spec.strategy.sandblaster.backupTasks={enabled: false}",
        "spec.checkpoint.everySeconds=3600",
    ]
    with tempfile.TemporaryDirectory() as folder, RunningJob(Path(folder), given, BATCH_JOB) as job:
        before = Moved.until(job, 3)
        after = Moved.until(job, 3 + evaluations)
        job.interrupt()
        job.wait()
    passed = after.evaluations - before.evaluations
    pushed = (after.pushed - before.pushed) / passed
    fetched = (after.fetched - before.fetched) / passed
    return {
        "bytes_pushed": pushed,
        "bytes_fetched": fetched,
        "pushes": pushed / BYTES_OF_PARAMETERS / GROUPS,
        "fetches": fetched / BYTES_OF_PARAMETERS / REPLICAS,
        "evaluations": passed,
    }


if __name__ == "__main__":
    main()
