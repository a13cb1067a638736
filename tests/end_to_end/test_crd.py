"""The custom resource on a real API server: what it takes, refuses, keeps and shows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import update_rules
from builders.jobs import SMALL
from cluster import Kubectl
from cluster.errors import CommandFailed
from disttrain.job.parsing import parse_job
from disttrain.job.status import JobStatus, TrainingStatus
from disttrain_generators import crd

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*/job*.yaml"))

Job = dict[str, Any]
Change = Callable[[Job], None]


@pytest.fixture(scope="module")
def served(kubectl: Kubectl) -> None:
    """The definition; it stays in the cluster, where other tests may use it."""
    kubectl.apply(crd.definition())
    kubectl.wait_until("Established", f"crd/{crd.NAME}")


pytestmark = pytest.mark.usefixtures("served")


NOBODY = "tests.disttrain.dev/nobody"
"""Keeps an operator that may be there from making pods of these jobs."""


def a_job(**spec: object) -> Job:
    job: Job = yaml.safe_load(SMALL)
    job["spec"] |= {"managedBy": NOBODY, **spec}
    return job


def downpour(job: Job) -> Job:
    inner: Job = job["spec"]["strategy"]["downpour"]
    return inner


def warmed_up(**method: object) -> Job:
    """A batch method that begins with 64 samples by another one."""
    return {
        "optimizer": {"lbfgs": {}},
        "warmStart": {"samples": 64, "batchSize": 8, **method},
    }


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_example_is_accepted_as_it_is(namespace: Kubectl, file: Path) -> None:
    namespace.run("apply", "--dry-run=server", "-f", str(file))


def test_what_is_read_back_is_the_same_job(namespace: Kubectl) -> None:
    template = {"spec": {"nodeSelector": {"a": "b"}}}
    written = a_job(replicas={"count": 3, "template": template})
    namespace.apply(written)
    job = parse_job(namespace.run("get", "dtj", "digits", "-o", "yaml", "--show-managed-fields"))
    assert job.metadata.uid
    assert job.spec == parse_job(yaml.safe_dump(written)).spec


def test_defaults_are_written_out(namespace: Kubectl) -> None:
    namespace.apply(a_job())
    spec = namespace.get("dtj", "digits")["spec"]
    assert spec["replicas"]["count"] == 1
    assert spec["coordinator"]["leaseSeconds"] == 30
    assert downpour({"spec": spec})["optimizer"]["sgd"]["schedule"] == {"constant": {}}


def test_a_grid_is_stored_without_a_number_beside_it(namespace: Kubectl) -> None:
    namespace.apply(a_job(replicas={"grid": "2x2"}))
    assert "partitions" not in namespace.get("dtj", "digits")["spec"]["replicas"]
    job = parse_job(namespace.run("get", "dtj", "digits", "-o", "yaml"))
    assert job.spec.replicas.partitions == 4


BAD: dict[str, tuple[Change, str]] = {
    "no strategy": (
        lambda job: job["spec"].update(strategy={}),
        "must have exactly one of downpour, localSteps, sandblaster",
    ),
    "two strategies": (
        lambda job: job["spec"]["strategy"].update(sandblaster={"optimizer": {"lbfgs": {}}}),
        "must have exactly one of downpour, localSteps, sandblaster",
    ),
    "two optimizers": (
        lambda job: downpour(job)["optimizer"].update(adagrad={"learningRate": 1}),
        f"must have exactly one of {update_rules.NAMES}",
    ),
    "no method to warm up by": (
        lambda job: job["spec"]["strategy"].update(downpour=None, sandblaster=warmed_up()),
        "must have exactly one of downpour, sgd",
    ),
    "a warm start to the very end": (
        lambda job: job["spec"].update(
            strategy={"sandblaster": warmed_up(sgd={"learningRate": 1})},
            batchSize=None,
            stop={"samples": 64},
        ),
        "spec.stop.samples is more than those of sandblaster's warmStart",
    ),
    "no end": (
        lambda job: job["spec"].update(stop={}),
        "must have at least one of epochs, steps, iterations, samples, seconds, targetMetric, "
        "patience",
    ),
    "two bounds of the target": (
        lambda job: job["spec"].update(
            stop={"targetMetric": {"name": "a", "atLeast": 1, "atMost": 2}}
        ),
        "must have exactly one of atLeast, atMost",
    ),
    "two volumes": (
        lambda job: job["spec"].update(checkpoint={"volume": {"claimName": "a", "size": "1Gi"}}),
        "must have exactly one of claimName, size",
    ),
    "no batches": (
        lambda job: job["spec"].update(batchSize=0),
        "spec.batchSize: Invalid value: 0: spec.batchSize in body should be greater than or equal "
        "to 1",
    ),
    "a missing field": (
        lambda job: job["spec"].pop("batchSize"),
        "spec.batchSize is required for downpour",
    ),
    "a text for a number": (
        lambda job: job["spec"].update(batchSize="many"),
        'spec.batchSize: Invalid value: "string": spec.batchSize in body must be of type integer',
    ),
    "an unknown field": (
        lambda job: job["spec"].update(batchsize=3),
        'unknown field "spec.batchsize"',
    ),
    "a template that is a pod": (
        lambda job: job["spec"].update(replicas={"template": {"containers": []}}),
        'unknown field "spec.replicas.template.containers"',
    ),
    "an unknown device": (
        lambda job: job["spec"].update(replicas={"device": "gpu"}),
        'supported values: "auto", "cpu", "cuda"',
    ),
    "an unknown transport": (
        lambda job: job["spec"].update(transport="udp"),
        "spec.transport in body should match '^(auto|tcp|sharedMemory)$'",
    ),
    "an unknown encryption": (
        lambda job: job["spec"].update(transport={"encryption": "some"}),
        'spec.transport.encryption: Unsupported value: "some": supported values: "tls", "none"',
    ),
    "a target that nobody measures": (
        lambda job: job["spec"].update(
            evaluation={"everyEpochs": 0},
            stop={"epochs": 1, "targetMetric": {"name": "a", "atLeast": 1}},
        ),
        "spec.stop.targetMetric needs an evaluation during training",
    ),
    "an amount that is none": (
        lambda job: job["spec"].update(checkpoint={"volume": {"size": "10GB"}}),
        "spec.checkpoint.volume.size",
    ),
    "half a batch in a portion": (
        lambda job: job["spec"].update(portionSize=33),
        "spec.portionSize is a multiple of spec.batchSize",
    ),
    "a lease between two heartbeats": (
        lambda job: job["spec"].update(coordinator={"leaseSeconds": 1}),
        "leaseSeconds is more than twice heartbeatSeconds",
    ),
    "a long name": (
        lambda job: job["metadata"].update(name="x" * 41),
        "metadata.name must be at most 40 characters",
    ),
    "a name that begins with a digit": (
        lambda job: job["metadata"].update(name="1st"),
        "metadata.name must be at most 40 characters a-z, 0-9 and '-', begin with a letter",
    ),
    "a name with a dot": (
        lambda job: job["metadata"].update(name="a.b"),
        "metadata.name must be at most 40 characters a-z, 0-9 and '-'",
    ),
}


def test_a_bad_manifest_is_refused_in_understandable_words(namespace: Kubectl) -> None:
    unclear = {}
    for name, (change, expected) in BAD.items():
        job = a_job()
        change(job)
        said = refusal(namespace, job)
        if expected not in said:
            unclear[name] = said
    assert unclear == {}


def refusal(namespace: Kubectl, job: Job) -> str:
    try:
        # As a person does it: the client's own kind of apply also names unknown fields.
        namespace.run("apply", "-f", "-", stdin=yaml.safe_dump(job))
    except CommandFailed as error:
        return str(error)
    return "accepted"


FIXED: tuple[Job, ...] = (
    {"batchSize": 64},
    {"seed": 1},
    {"task": {"arguments": {"hidden": 3}}},
    {"task": {"source": {"configMap": "code"}}},
    {"strategy": {"downpour": {"optimizer": {"sgd": {"learningRate": 0.2}}}}},
    {"portionSize": 64},
    {"evaluation": {"everyEpochs": 2}},
    {"image": "other"},
    {"managedBy": "someone.example/else"},
    {"pendingDeadlineSeconds": 5},
    {"replicas": {"partitions": 2}},
    {"replicas": {"template": None}},
    {"replicas": {"template": {"spec": {"nodeSelector": {"a": "c"}}}}},
    {"parameterServer": {"shards": 2}},
)

CHANGEABLE: tuple[Job, ...] = (
    {"replicas": {"count": 5}},
    {"suspend": True},
    {"activeDeadlineSeconds": 60},
    {"activeDeadlineSeconds": None},
    {"ttlSecondsAfterFinished": 60},
)


def test_what_a_job_is_cannot_be_changed_and_how_long_and_wide_it_runs_can(
    namespace: Kubectl,
) -> None:
    namespace.apply(a_job(replicas={"template": {"spec": {"nodeSelector": {"a": "b"}}}}))
    for change in FIXED:
        with pytest.raises(CommandFailed, match=r"cannot be changed: delete the job"):
            patch(namespace, {"spec": change})
    for change in CHANGEABLE:
        patch(namespace, {"spec": change})


@pytest.mark.parametrize("written", [None, "tcp", {"kind": "tcp", "encryption": "none"}])
def test_a_transport_is_a_text_or_a_section_and_is_not_changed(
    namespace: Kubectl, written: object
) -> None:
    """The schema gives it no type, and so the API server's rules do not see it by itself."""
    namespace.apply(a_job() if written is None else a_job(transport=written))
    for other in ("sharedMemory", {"kind": "tcp", "encryption": "tls"}):
        with pytest.raises(CommandFailed, match=r"spec\.transport cannot be changed"):
            patch(namespace, {"spec": {"transport": other}})
    namespace.run("scale", "dtj/digits", "--replicas=3")
    patch(namespace, {"status": {"phase": "Running"}}, "--subresource=status")
    read = namespace.get("dtj", "digits")["spec"]
    assert read.get("transport") == written


def test_templates_change_while_a_job_is_suspended_and_as_it_is_or_is_resumed(
    namespace: Kubectl,
) -> None:
    def on(pool: str | None) -> Job:
        template = {"metadata": {"labels": {"pool": pool}}, "spec": {"nodeSelector": {"a": pool}}}
        return {"template": template}

    def everywhere(pool: str | None) -> Job:
        return {role: on(pool) for role in ("coordinator", "parameterServer", "replicas")}

    namespace.apply(a_job(suspend=True, **everywhere("b")))
    patch(namespace, {"spec": everywhere("c")})
    patch(namespace, {"spec": {"suspend": False, **everywhere("d")}})
    for change in (everywhere("e"), {"replicas": {"template": None}}):
        with pytest.raises(CommandFailed, match=r"template cannot be changed"):
            patch(namespace, {"spec": change})
    patch(namespace, {"spec": {"suspend": True, **everywhere(None)}})
    with pytest.raises(CommandFailed, match=r"spec\.parameterServer\.shards cannot be changed"):
        patch(namespace, {"spec": {"parameterServer": {"shards": 2}}})


def test_a_field_that_is_taken_away_is_a_change(namespace: Kubectl) -> None:
    namespace.apply(a_job(image="registry.example/runtime:1"))
    with pytest.raises(CommandFailed, match=r"spec\.image cannot be changed"):
        patch(namespace, {"spec": {"image": None}})


def patch(namespace: Kubectl, change: Job, *options: str) -> None:
    text = yaml.safe_dump(change)
    namespace.run("patch", "dtj", "digits", "--type=merge", "-p", text, *options)


def test_replicas_are_scaled_and_the_status_is_apart_from_the_spec(namespace: Kubectl) -> None:
    namespace.apply(a_job())
    training = TrainingStatus(
        loss=float("nan"), progress_percent=40, measure="accuracy 0.97", metrics={"a": float("nan")}
    )
    status = JobStatus.model_validate(
        {
            "phase": "Running",
            "strategy": "downpour",
            "shards": 1,
            "replicas": 1,
            "selector": "a=b",
        }
    ).model_copy(update={"training": training})

    namespace.run("scale", "dtj/digits", "--replicas=4")
    patch(namespace, {"status": status.as_json()}, "--subresource=status")
    patch(namespace, {"status": {"phase": "Failed"}})

    job = namespace.get("dtj", "digits")
    assert job["spec"]["replicas"]["count"] == 4
    assert job["status"]["phase"] == "Running"
    shown = namespace.run("get", "dtj", "digits").splitlines()
    assert shown[0].split() == [
        *("NAME", "PHASE", "STRATEGY", "SHARDS", "REPLICAS", "PROGRESS", "MEASURE", "AGE")
    ]
    assert shown[1].split()[:8] == [
        *("digits", "Running", "downpour", "1", "4", "40", "accuracy", "0.97")
    ]


def apply_status(namespace: Kubectl, status: dict[str, Any], manager: str) -> None:
    document = {key: value for key, value in a_job().items() if key != "spec"} | {"status": status}
    namespace.run(
        *("apply", "--server-side", "--subresource=status", f"--field-manager={manager}"),
        *("-f", "-"),
        stdin=yaml.safe_dump(document),
    )


def test_a_status_of_a_later_version_is_taken(namespace: Kubectl) -> None:
    """A coordinator runs on when the chart, and with it the schema, goes back to a version."""
    namespace.apply(a_job())
    later = {"training": {"samples": 5, "later": {"a": 1}}, "later": [1]}
    apply_status(namespace, later, "disttrain-coordinator")

    found = namespace.get("dtj", "digits")["status"]
    assert {name: found[name] for name in later} == later


def test_two_writers_share_the_status(namespace: Kubectl) -> None:
    namespace.apply(a_job())
    operator = {
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "EpochsReached",
                "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ]
    }
    for manager, status in (
        ("disttrain-operator", operator),
        ("disttrain-coordinator", {"training": {"samples": 5, "metrics": {"accuracy": None}}}),
    ):
        apply_status(namespace, status, manager)
    namespace.wait_until("Complete", "dtj/digits")
    assert namespace.get("dtj", "digits")["status"]["training"]["samples"] == 5
