"""What a manifest says about Kubernetes: read, refused with its path, and given to processes."""

import pytest
import yaml

from builders.jobs import SMALL, a_job, complaints
from disttrain.job import defaults
from disttrain.job.parsing import parse_job
from disttrain.job.spec import DistTrainJob

FROM_THE_SERVER = """\
metadata:
  name: digits
  namespace: team
  uid: 0f6a
  resourceVersion: "77"
  generation: 3
  creationTimestamp: "2026-01-02T03:04:05Z"
  deletionTimestamp: null
  finalizers: [example.org/keep]
  ownerReferences: [{kind: Experiment, name: one}]
  managedFields: [{manager: kubectl, fieldsV1: {"f:spec": {}}}]
  annotations: {disttrain.dev/restarts: "{}"}
status: {phase: Running, observedGeneration: 3, somethingNew: [1]}
"""


def as_served() -> DistTrainJob:
    return parse_job(SMALL.replace("metadata: {name: digits}\n", FROM_THE_SERVER))


def test_what_kubectl_prints_is_a_manifest() -> None:
    job = as_served()
    assert (job.metadata.namespace, job.metadata.uid) == ("team", "0f6a")
    assert job.metadata.generation == 3


def test_what_the_server_keeps_for_itself_is_not_written_down() -> None:
    written = as_served().model_dump(mode="json", by_alias=True)
    assert "status" not in written
    assert set(written["metadata"]) == {"name", "namespace", "uid", "labels", "annotations"}


def test_processes_get_the_spec_and_which_job_it_is() -> None:
    manifest = defaults.written_out(as_served())
    assert manifest["metadata"] == {"name": "digits", "namespace": "team", "uid": "0f6a"}
    assert parse_job(yaml.safe_dump(manifest)).spec == as_served().spec


def test_processes_are_not_told_of_what_nobody_asks_for() -> None:
    """Their image may be older than a field. A choice is told, also one that is null."""
    written = defaults.written_out(a_job("spec.evaluation=null"))["spec"]
    assert isinstance(written, dict)
    assert written["stop"] == {"epochs": 1}
    assert written["evaluation"] is None


def test_every_field_for_kubernetes_is_read() -> None:
    job = a_job(
        "spec.task.source.configMap=digits-code",
        "spec.checkpoint.volume={size: 10Gi, storageClassName: nfs, accessModes: [ReadWriteOnce]}",
        "spec.image=registry.example/runtime:1",
        "spec.replicas={partitions: 1, template: {spec: {containers: [{name: disttrain}]}}}",
        "spec.coordinator.template.metadata.labels={team: a}",
        "spec.parameterServer.template.spec.nodeSelector={disk: fast}",
        "spec.suspend=true",
        "spec.activeDeadlineSeconds=60",
        "spec.pendingDeadlineSeconds=30",
        "spec.ttlSecondsAfterFinished=0",
        "spec.managedBy=kueue.x-k8s.io/multikueue",
    )
    assert job.spec.task.source is not None
    assert job.spec.task.source.config_map == "digits-code"
    assert job.spec.replicas.template is not None
    assert job.spec.replicas.template.spec == {"containers": [{"name": "disttrain"}]}
    assert job.spec.checkpoint.volume is not None
    assert job.spec.checkpoint.volume.access_modes == ("ReadWriteOnce",)
    assert parse_job(yaml.safe_dump(job.model_dump(mode="json", by_alias=True))) == job


def test_without_them_nothing_is_said_about_kubernetes() -> None:
    spec = a_job().spec
    assert (spec.task.source, spec.checkpoint.volume, spec.image, spec.managed_by) == (None,) * 4
    assert spec.suspend is False


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("spec.task.source={}", "spec.task.source: must have configMap, got nothing"),
        (
            "spec.task.source.configMap=A_b",
            "spec.task.source.configMap: must be the name of a Kubernetes object: a-z, 0-9, '-' "
            "and '.', at most 253 characters, got 'A_b'",
        ),
        (
            "spec.checkpoint.volume={}",
            "spec.checkpoint.volume: must have exactly one of claimName, size, got none of them",
        ),
        (
            "spec.checkpoint.volume={claimName: a, size: 1Gi}",
            "spec.checkpoint.volume: must have exactly one of claimName, size, got claimName and "
            "size",
        ),
        (
            "spec.checkpoint.volume={claimName: a, storageClassName: b}",
            "spec.checkpoint.volume: storageClassName describes a claim that is made; take it "
            "away or give size, not claimName",
        ),
        (
            "spec.checkpoint.volume={claimName: a, retentionPolicy: {whenDeleted: Delete}}",
            "spec.checkpoint.volume: retentionPolicy describes a claim that is made; take it "
            "away or give size, not claimName",
        ),
        (
            "spec.checkpoint.volume={size: 10GB}",
            "spec.checkpoint.volume.size: must be an amount of bytes such as 10Gi or 500M, got "
            "'10GB'",
        ),
        (
            "spec.checkpoint.volume={size: 1Gi, accessModes: [Many]}",
            "spec.checkpoint.volume.accessModes[0]: must be one of 'ReadWriteMany' or "
            "'ReadWriteOnce', got 'Many' (text)",
        ),
        (
            "spec.checkpoint={uri: /data, volume: {size: 1Gi}}",
            "spec.checkpoint: volume is where checkpoints lie, so uri must be left out, got "
            "'/data'",
        ),
        (
            "spec.replicas.template.containers=[]",
            "spec.replicas.template.containers: unknown field; known here: metadata, spec",
        ),
        ("spec.image=''", "spec.image: must not be empty, got '' (text)"),
        ("spec.suspend=1", "spec.suspend: must be true or false, got 1 (number)"),
        (
            "spec.activeDeadlineSeconds=0",
            "spec.activeDeadlineSeconds: must be at least 1, got 0",
        ),
        (
            "spec.ttlSecondsAfterFinished=-1",
            "spec.ttlSecondsAfterFinished: must be at least 0, got -1",
        ),
    ],
)
def test_a_mistake_is_told_with_its_path(assignment: str, expected: str) -> None:
    lines = [line.removeprefix("job.yaml: ") for line in complaints(SMALL, assignment)]
    assert [line.removesuffix(" (given by --set)") for line in lines] == [expected]
