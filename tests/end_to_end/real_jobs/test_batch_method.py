"""A job with a batch method in real pods: processes of it die, and its model has the same bits."""

import pytest

from builders import batch_jobs
from builders.batch_jobs import BATCH_JOB
from builders.cluster_training import ClusterTraining
from builders.commands import Answer
from builders.job_view import Status
from builders.operator_process import OperatorProcess
from builders.people import Person
from cluster import Kubectl
from cluster.hooks import Hooks

pytestmark = pytest.mark.landing
TASK = "convex:Convex"
PORTION_SECONDS = 0.3
"""29 evaluations of 15 portions on two replicas: over a minute, for two deaths and a look."""
SAME = ("iteration", "evaluations", "objective", "gradientNorm", "end")


def test_whoever_is_killed_the_model_has_the_same_bits(
    hooks: Hooks, namespace: Kubectl, operator_to_kill: OperatorProcess
) -> None:
    undisturbed = ClusterTraining(hooks, namespace, "undisturbed", BATCH_JOB)
    job = ClusterTraining(hooks, namespace, "convex", BATCH_JOB)
    job.apply_task(TASK, {"portion_seconds": PORTION_SECONDS})
    undisturbed.apply_task(TASK, {})

    job.wait_until(lambda: batch(job).get("iteration", 0) >= 4, "it has a history")
    job.kill("shard")
    job.wait_until(lambda: batch(job).get("returns", 0) >= 1, "all return to a checkpoint")
    before = batch(job)["evaluation"]
    job.wait_until(lambda: batch(job).get("evaluation", 0) > before, "it goes on")
    job.wait_until(lambda: sorted(job.restarts("shard")) == [0, 1], "the shard's restart")
    job.kill("coordinator")
    job.wait_until(lambda: job.restarts("coordinator") == [1], "the coordinator's restart")
    see_it_train(job)

    expected, summary = undisturbed.complete(), job.complete()
    assert summary["reason"] == expected["reason"] == "Converged"
    assert summary["restarts"] == {"coordinator": 1, "shard": 1, "replica": 0}
    assert batch_jobs.same_bits(job.trained(), undisturbed.trained())
    method = summary["sandblaster"]
    assert [method[name] for name in SAME] == [expected["sandblaster"][name] for name in SAME]
    assert_its_object_tells(job, method)
    look_back(job)


def batch(job: ClusterTraining) -> Status:
    """What status.json says of the method."""
    found: Status = job.progress().get("sandblaster") or {}
    return found


def assert_its_object_tells(job: ClusterTraining, method: Status) -> None:
    status = job.status()
    told = status["sandblaster"]
    assert told.items() <= method.items()
    assert set(SAME) <= set(told)
    assert (told["stage"], told["end"]) == ("done", "gradient")
    assert told["returns"] >= 1
    assert status["training"]["loss"] == told["objective"]
    assert job.condition("Complete")["reason"] == "Converged"
    deaths = sorted(each["role"] for each in status["failures"] if each["exitCode"] == 137)
    assert deaths == ["coordinator", "shard"], status["failures"]
    assert status["restarts"] == {"coordinator": 1, "shard": 1, "replica": 0}


def see_it_train(job: ClusterTraining) -> None:
    """While it trains: what its pods do."""
    person = Person(job.kubectl)
    job.wait_until(
        lambda: shows_rates(person.types("disttrain top convex")) or has_ended(job),
        "its pods have figures",
    )


def shows_rates(top: Answer) -> bool:
    """Whether shards carry out commands, and replicas compute samples."""
    assert top.code == 0, top.err
    head = top.rows["POD"]
    assert head[:4] == ["POD", "STATUS", "SAMPLES/S", "COMMANDS/S"], top.out
    rates = [row[2:] for name, row in top.rows.items() if "-shard-" in name or "-replica-" in name]
    return len(rates) == 4 and all(rate and float(rate[0].replace(",", "")) > 0 for rate in rates)


def has_ended(job: ClusterTraining) -> bool:
    return job.status().get("phase") in {"Complete", "Failed"}


def look_back(job: ClusterTraining) -> None:
    """After the end: its row, its page, its log."""
    person = Person(job.kubectl)
    listed = person.types("disttrain list").rows[job.name]
    assert listed[:7] == [job.name, "Complete", "sandblaster", "2", "2", "100", "accuracy"]

    page = person.types(f"disttrain get {job.name}")
    assert page.code == 0, page.err
    assert page.rows["Method:"][1] == "iteration"
    assert {"gradient", "evaluations,"} <= set(page.rows["Method:"])
    assert page.rows["Measures:"][1] == "objective"

    log = person.types(f"disttrain logs {job.name} --role coordinator --no-prefix")
    assert log.code == 0, log.err
    assert "point accepted" in log.out
