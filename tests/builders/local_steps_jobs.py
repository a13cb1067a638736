"""Manifests of jobs with local steps: what all have, and what a test makes another."""

from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from builders.runs import RunningJob

SAMPLES: Final = 1024
EPOCHS: Final = 2


def counting(
    local_steps: str,
    replicas: str,
    *,
    step_seconds: float = 0.02,
    member_timeout: float = 20,
    **changes: Any,
) -> str:
    """Of a task that counts how often each sample was applied.

    `local_steps`, `replicas`: YAML, beside what all have; `changes` are other fields of the spec.
    """
    optimizer = {"name": "SGD", "arguments": {"lr": 1.0}}
    spec = {
        "task": {
            "entrypoint": "counting:Counting",
            "arguments": {"step_seconds": step_seconds},
        },
        "strategy": {"localSteps": {"optimizer": optimizer, **yaml.safe_load(local_steps)}},
        "audit": "full",
        "checkpoint": {"everySeconds": 0.5},
        "coordinator": {
            "heartbeatSeconds": 0.2,
            "leaseSeconds": 3,
            "memberTimeoutSeconds": member_timeout,
        },
        "parameterServer": {"shards": 2},
        "replicas": {"device": "cpu", **yaml.safe_load(replicas)},
        "failurePolicy": {"restartBackoff": {"initialSeconds": 0.1, "maxSeconds": 1}},
    }
    return _job("counting", spec | changes)


def proving(local_steps: str, replicas: str, **changes: Any) -> str:
    """Of a task whose batches a plain loop repeats."""
    spec = {
        "task": {"entrypoint": "proving:Proving"},
        "strategy": {"localSteps": {"steps": 7, **yaml.safe_load(local_steps)}},
        "portionSize": 80,
        "coordinator": {"heartbeatSeconds": 0.2},
        "parameterServer": {"threads": 1, "shards": 3},
        "replicas": {"device": "cpu", "threads": 1, **yaml.safe_load(replicas)},
    }
    return _job("proving", spec | changes)


def applied(status: dict[str, Any], fraction: float) -> bool:
    """Whether so much of a job of `counting` is done."""
    return bool(status.get("samples", 0) >= fraction * EPOCHS * SAMPLES)


def kill_every_role(
    job: RunningJob, replicas: int, replica: str = "replica-0", gate: Path | None = None
) -> dict[str, Any]:
    """Kill one process of each while a job of `counting` trains; the summary of its good end.

    `replica`: the process of one that is killed. `gate`: the task's, for replicas of several
    processes: a group that still forms when the coordinator is killed forms anew, so all others
    wait there until it is whole.
    """
    job.wait_until(lambda status: applied(status, 0.2) and status["liveReplicas"] == replicas)
    job.kill(replica)
    job.wait_until(lambda status: applied(status, 0.4) and status["checkpoints"] >= 1)
    if gate is not None:
        job.wait_until(lambda status: status["liveReplicas"] == replicas)
        gate.touch()
    job.kill("shard-1")
    job.wait_until(partial(applied, fraction=0.6))
    job.kill("coordinator")
    assert job.wait() == 0

    summary = job.summary()
    assert summary["phase"] == "Complete"
    assert summary["samples"] == EPOCHS * SAMPLES
    assert summary["restarts"] == {"coordinator": 1, "shard": 1, "replica": 1}
    return summary


def _job(name: str, spec: dict[str, Any]) -> str:
    common = {"batchSize": 8, "stop": {"epochs": 2}, "evaluation": None}
    job = {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {"name": name},
        "spec": common | spec,
    }
    return yaml.safe_dump(job, sort_keys=False)
