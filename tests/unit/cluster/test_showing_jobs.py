"""What is read from objects and shown: pages, events, figures of pods."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from builders.api_answers import CREATED, a_condition, a_job, a_pod
from disttrain.cli import cluster_job
from disttrain.cluster import following, kubectl_text, logs, pods, usage
from disttrain.cluster.errors import ClusterError
from disttrain.cluster.following import Observation
from disttrain.cluster.interface import Object
from disttrain.job.status import Phase

THEN = datetime.fromisoformat(CREATED)
NOW = THEN + timedelta(minutes=5)

RUNNING: dict[str, Any] = {
    "phase": "Running",
    "strategy": "downpour",
    "observedGeneration": 1,
    "readyReplicas": 2,
    "restarts": {"shard": 1},
    "conditions": [
        a_condition("ReplicasAvailable", "False", "2 of 3 have joined"),
        a_condition("Degraded", message="the image of digits-replica-x cannot be pulled"),
    ],
    "training": {
        "progressPercent": 42,
        "epoch": 3.2,
        "samples": 12345,
        "samplesPerSecond": 5400.4,
        "loss": 0.25,
        "metrics": {"accuracy": 0.9512},
        "stalenessP50": 2,
        "stalenessP99": 7,
        "predictionError": 0.29,
        "estimatedRemainingSeconds": 61,
    },
    "parameterServer": {
        "shards": [
            {
                "index": 0,
                "version": 1200,
                "checkpointVersion": 1000,
                "updatesAtRisk": 200,
                "stalenessP50": 2,
                "stalenessP99": 8,
            }
        ]
    },
    "data": {"portionsDone": 8, "portionsRequeued": 1, "samplesRepeated": 32},
    "checkpoint": {"path": "checkpoints/00000003", "time": CREATED, "samples": 9000},
    "failures": [
        {
            "time": CREATED,
            "role": "shard",
            "pod": "digits-shard-1",
            "exitCode": 137,
            "reason": "OOMKilled",
            "logTail": "first\nlast \x1b[31mwords",
        }
    ],
}


def rows(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split() for line in text.splitlines() if line.split()}


def test_the_page_of_a_job_says_how_it_is_and_why() -> None:
    shards = [a_pod("digits-shard-1", "shard", restartCount=1), a_pod("digits-shard-0", "shard")]
    others = [
        a_pod("digits-replica-x-y", "replica"),
        a_pod("digits-coordinator-0-z", "coordinator"),
    ]

    page = cluster_job.page(a_job(**RUNNING), [*shards, *others], NOW)

    found = rows(page)
    assert found["Phase:"] == ["Phase:", "Running"]
    assert "Progress:    42%, epoch 3.20, 12,345 samples, 1 min 01 s left" in page
    assert "Measures:    loss 0.25, accuracy 0.9512" in page
    speed = "5,400 samples/s, staleness p50 2 p99 7 updates, predictions miss 29% of the way"
    assert f"Speed:       {speed}" in page
    assert "Replicas:    2 joined of 3 wanted" in page
    assert "Restarts:    shard 1" in page
    assert "Data:        8 portions done, 1 given again, 32 samples repeated" in page
    assert "Checkpoint:  checkpoints/00000003, 5m ago, after 9,000 samples" in page
    place = "folder digits-uid-of-digits of persistentvolumeclaim/digits-checkpoints"
    assert f"Files:       {place}" in page
    assert page.index("Degraded") < page.index("ReplicasAvailable"), "what holds comes first"
    assert found["0"] == ["0", "1,200", "1,000", "200", "2/8"]
    names = [name for name in found if name.startswith("digits-") and name[-1] != ":"]
    assert names == [
        "digits-coordinator-0-z",
        "digits-shard-0",
        "digits-shard-1",
        "digits-replica-x-y",
    ]
    assert "5m ago  digits-shard-1: OOMKilled exit code 137" in page
    assert "| last ?[31mwords" in page, "logs cannot steer the terminal"


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ({"count": 3}, "of 3 wanted\n"),
        ({"count": 3, "partitions": 1, "ranks": 2}, "of 3 wanted, each of 2 processes\n"),
        ({"count": 3, "grid": "2x3"}, "of 3 wanted, each of 6 processes\n"),
    ],
)
def test_the_page_tells_of_how_many_processes_a_replica_is(
    replicas: dict[str, object], said: str
) -> None:
    job = a_job(**RUNNING)
    job["spec"]["replicas"] = replicas

    assert said in cluster_job.page(job, [], NOW)


def test_processes_of_a_replica_stand_beside_each_other() -> None:
    names = [f"digits-replica-{index}-{process}" for index in (0, 2, 10) for process in (0, 9, 10)]
    job = a_job(**RUNNING)
    job["spec"]["replicas"] = {"count": 3, "partitions": 11}

    page = cluster_job.page(job, [a_pod(name, "replica") for name in sorted(names)], NOW)

    assert [name for name in rows(page) if name in names] == names
    assert "2 joined of 3 wanted, each of 11 processes" in page


def test_the_page_tells_what_is_no_number_and_what_the_manifest_had_better_say() -> None:
    method = {"iteration": 3, "warning": "2 groups for 4 replicas: make portionSize smaller"}
    training = {**RUNNING["training"], "metrics": {"accuracy": None}, "warning": "no room"}

    page = cluster_job.page(
        a_job(**RUNNING | {"training": training, "sandblaster": method}), [], NOW
    )

    assert "Measures:    objective 0.25, accuracy nan" in page
    assert f"Warning:     {method['warning']}; no room" in page


def test_a_new_job_has_a_short_page_and_after_a_while_a_hint() -> None:
    job = a_job()

    early = cluster_job.page(job, [], THEN + timedelta(seconds=9))
    late = cluster_job.page(job, [], THEN + timedelta(seconds=11))

    assert "Phase:       <unknown>" in early
    assert "operator" not in early
    assert following.NO_OPERATOR in late


def test_a_change_that_the_operator_has_not_seen_is_named() -> None:
    job = a_job(**RUNNING)
    job["metadata"]["generation"] = 2
    assert "has not acted on the latest change" in cluster_job.page(job, [], NOW)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "Running"),
        ({"state": {"waiting": {"reason": "ImagePullBackOff"}}}, "ImagePullBackOff"),
        ({"state": {"terminated": {"reason": "Completed"}}}, "Completed"),
    ],
)
def test_the_state_of_a_pod_is_what_kubectl_shows(changes: Object, shown: str) -> None:
    found = pods.read(a_pod("digits-shard-0", "shard", **changes))
    assert found.state == shown


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    pod = a_pod("digits-shard-0", "shard")
    pod["metadata"]["deletionTimestamp"] = CREATED
    assert pods.read(pod).state == "Terminating"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (3600, "60m"),
        (12_000, "3h20m"),
        (100_000, "27h"),
        (260_000, "3d"),
        (800_000, "9d"),
    ],
)
def test_durations_read_as_kubectls(seconds: float, text: str) -> None:
    assert kubectl_text.duration(seconds) == text


def test_an_instant_may_have_a_fraction() -> None:
    now = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert kubectl_text.seconds_since("2026-01-01T00:00:00.250000Z", now) == 0.75
    assert kubectl_text.seconds_since("2026-01-01T00:00:00Z", now) == 1


METRICS = """# HELP disttrain_samples_total Training samples processed.
disttrain_samples_total 1000.0
disttrain_step_seconds_total{doing="push"} 1.5
disttrain_step_seconds_total{doing="data"} 0.5
disttrain_loss NaN
disttrain_gradient_staleness_updates_bucket{le="0.0"} 10
disttrain_gradient_staleness_updates_bucket{le="2.0"} 98
disttrain_gradient_staleness_updates_bucket{le="8.0"} 100
disttrain_gradient_staleness_updates_bucket{le="+Inf"} 100
disttrain_gradient_staleness_updates_bucket{le="many"} 100
nonsense
disttrain_odd one
"""


def test_metrics_are_read_with_their_quantiles() -> None:
    found = usage.parse_metrics(METRICS)
    assert found.values["disttrain_samples_total"] == 1000
    assert found.values["disttrain_step_seconds_total"] == 2
    assert "disttrain_loss" not in found.values
    assert found.quantile(usage.STALENESS, 0.5) == 2
    assert found.quantile(usage.STALENESS, 0.99) == 8
    assert found.quantile("other", 0.5) is None


def test_a_label_may_hold_what_ends_labels() -> None:
    found = usage.parse_metrics('errors_total{kind="a } b \\" c"} 2\nerrors_total{kind="d"} 3')
    assert found.values == {"errors_total": 5}


def test_a_row_of_top_is_a_difference_of_two_looks() -> None:
    pod = pods.read(a_pod("digits-replica-x-y", "replica"))
    before = usage.parse_metrics(METRICS)
    after = usage.parse_metrics(METRICS.replace("1000.0", "3000.0"))
    used = usage.used_by(
        {"containers": [{"usage": {"cpu": "250m", "memory": "128Mi"}}, {"usage": {"cpu": "1"}}]}
    )

    found = usage.row(pod, (before, after), 2, used, usage.UPDATES)
    restarted = usage.row(pod, (after, before), 2, {}, usage.UPDATES)

    assert found == ["digits-replica-x-y", "Running", "1,000", "", "2/8", "1250m", "128Mi"]
    assert restarted[2] == "", "its counter began again"
    assert len(usage.head(usage.UPDATES)) == len(found)


@pytest.mark.parametrize("name", ["disttrain_vector_commands_total", "disttrain_orders_total"])
def test_shards_of_a_batch_method_are_shown_by_their_commands(name: str) -> None:
    """By an older image, too."""
    pod = pods.read(a_pod("digits-shard-0", "shard"))
    before = usage.parse_metrics(f"{name} 100\ndisttrain_updates_applied_total 0")
    after = usage.parse_metrics(f"{name} 103\ndisttrain_updates_applied_total 0")

    found = usage.row(pod, (before, after), 2, {}, usage.COMMANDS)

    assert usage.head(usage.COMMANDS) == [
        "POD",
        "STATUS",
        "SAMPLES/S",
        "COMMANDS/S",
        "CPU",
        "MEMORY",
    ]
    assert found == ["digits-shard-0", "Running", "", "1.5", "", ""]


def of_one_container(memory: str) -> Object:
    return {"containers": [{"usage": {"cpu": "1", "memory": memory}}]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("1", 1), ("250m", 0.25), ("12345n", 1.2345e-5), ("2Gi", 2**31), ("5k", 5e3)),
        *(("2E", 2e18), ("1Pi", 2**50), ("1e3", 1e3), ("1.5E-2", 0.015)),
    ],
)
def test_quantities(text: str, value: float) -> None:
    assert usage.used_by(of_one_container(text))["memory"] == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "x", "1Qi", "1e", "k"])
def test_other_texts_are_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        usage.used_by(of_one_container(text))


def test_lines_of_a_log_are_told_apart_by_their_nanoseconds() -> None:
    # The API server leaves out zeros at the end: as texts these would come in the wrong order.
    first = logs.parse_line("pod", "2026-01-01T00:00:00.1Z one")
    second = logs.parse_line("pod", "2026-01-01T00:00:00.10002Z two and more")
    whole = logs.parse_line("pod", "2026-01-01T00:00:01Z three")
    assert second.text == "two and more"
    assert logs.is_new(second, first)
    assert not logs.is_new(first, second)
    assert logs.is_new(whole, second)
    assert not logs.is_new(whole, whole)


def test_the_end_of_a_job_is_read_from_its_conditions() -> None:
    phase_alone = observed(phase="Complete")
    failed = observed(conditions=[a_condition("Failed", message="too many restarts")])
    running = observed(conditions=[a_condition("Complete", "False")])
    assert phase_alone.ended is None
    assert running.ended is None
    assert failed.ended is Phase.FAILED
    assert failed.why is not None
    assert failed.why.message == "too many restarts"


def test_news_are_told_once() -> None:
    before, after = observed(phase="Pending"), observed(**RUNNING)
    assert following.news(before, after) == [
        "Degraded (DegradedReason): the image of digits-replica-x cannot be pulled",
        "digits-shard-1 ended: OOMKilled (exit code 137)",
    ]
    assert following.news(after, after) == []


def test_a_status_of_another_release_is_named_with_a_way_out() -> None:
    with pytest.raises(ClusterError, match=r"status\.phase of job digits .* get digits -o yaml"):
        observed(phase="Dreaming")


def test_news_cannot_steer_a_terminal() -> None:
    steering = a_condition("Degraded", message="\x1b[2Jgone\nand more")
    assert following.news(None, observed(conditions=[steering])) == [
        "Degraded (DegradedReason): ?[2Jgone and more"
    ]


def test_that_there_is_no_operator_is_told_once_and_not_at_once() -> None:
    early, late = following.observe(a_job(), THEN), following.observe(a_job(), NOW)
    assert following.news(None, early) == []
    assert following.news(early, late) == [following.NO_OPERATOR]
    assert following.news(late, late) == []


def observed(**status: Any) -> Observation:
    return following.observe(a_job(**status), NOW)
