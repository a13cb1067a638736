"""The operator is away while its jobs end, are overwritten and fall due; it comes back once."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from builders import operator_process
from builders.pretended_training import PretendedTraining
from cluster import Kubectl, namespaces

pytestmark = pytest.mark.landing
SOON = timedelta(seconds=50)
"""For what takes five seconds at most on cores that nobody else uses."""
PODS = 5


class Jobs:
    """Four jobs of one namespace, and what they were before."""

    def __init__(self, place: Kubectl) -> None:
        self.failed = PretendedTraining(place, "failed")
        self.ends_meanwhile = PretendedTraining(place, "ends-meanwhile")
        self.falls_due = PretendedTraining(place, "falls-due")
        self.trains_on = PretendedTraining(place, "trains-on")
        self.before: set[str] = set()
        self.operator_is_back = 0.0
        """When it had started again, on the monotonic clock."""

    def start(self) -> None:
        self.failed.apply()
        self.ends_meanwhile.apply()
        self.falls_due.apply()
        self.trains_on.apply()
        for one in (self.failed, self.ends_meanwhile, self.falls_due, self.trains_on):
            one.wait_for_phase("Running")
        self.failed.finish("Failed", "Diverged", "the loss is not finite")
        self.failed.wait_for_condition("Failed")
        self.falls_due.finish()
        self.falls_due.wait_for_condition("Complete")
        # The phase does not wait for all of them.
        self.trains_on.wait_until(lambda: len(self.trains_on.uids()) == PODS, "all pods are made")
        self.before = self.trains_on.uids()

    def change(self) -> None:
        """What happens while no operator is there."""
        self.falls_due.patch(ttlSecondsAfterFinished=0)
        children = (f"statefulset/{self.failed.name}-shard", f"service/{self.failed.name}")
        self.failed.kubectl.run("delete", *children, f"job.batch/{self.failed.name}-coordinator")
        overwritten = json.dumps({"status": {"phase": "Running", "conditions": []}})
        patch = ("--subresource=status", "--type=merge", "-p", overwritten)
        self.failed.kubectl.run("patch", self.failed.resource, *patch)
        self.ends_meanwhile.finish(message="meanwhile")
        job = self.ends_meanwhile
        job.wait_until(lambda: _has_succeeded(job), "its coordinator has ended")


@pytest.fixture(scope="module")
def jobs(
    definition: None, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Jobs]:
    """The jobs after the operator was killed, things changed, and it is back."""
    place = namespaces.make(kubectl, f"operator-restarts-{time.time_ns() % 10**6}")
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with operator_process.running(place, log) as operator:
        made = Jobs(place)
        made.start()
        operator.kill()
        made.change()
        assert made.falls_due.has(made.falls_due.resource)
        operator.start()
        operator.wait_for_its_first_look()
        made.operator_is_back = time.monotonic()
        yield made
    namespaces.remove(kubectl, place.namespace)


def test_a_job_that_was_due_goes_at_once(jobs: Jobs) -> None:
    jobs.falls_due.kubectl.wait_until("delete", jobs.falls_due.resource, SOON)
    seconds = time.monotonic() - jobs.operator_is_back
    print(f"deleted within {seconds:.1f} s of the operator's first look")  # noqa: T201
    jobs.falls_due.wait_until(lambda: jobs.falls_due.leftovers() == [], "nothing is left")


def test_an_end_that_it_missed_is_told(jobs: Jobs) -> None:
    assert jobs.ends_meanwhile.wait_for_condition("Complete")["message"] == "meanwhile"


def test_nothing_is_created_after_the_end(jobs: Jobs) -> None:
    found = jobs.failed.wait_for_condition("Failed")
    assert found["reason"] == "Diverged"
    # By now it has looked at all jobs at least once.
    jobs.ends_meanwhile.wait_for_condition("Complete")
    assert not jobs.failed.has(f"statefulset/{jobs.failed.name}-shard")
    assert not jobs.failed.has(f"job.batch/{jobs.failed.name}-coordinator")


def test_what_runs_is_adopted(jobs: Jobs) -> None:
    jobs.trains_on.finish()
    jobs.trains_on.wait_for_condition("Complete")
    assert jobs.trains_on.uids() <= jobs.before
    events = jobs.trains_on.events()
    assert len(events) == len(set(events))


def _has_succeeded(job: PretendedTraining) -> bool:
    return [pod["status"]["phase"] for pod in job.pods("coordinator")] == ["Succeeded"]
