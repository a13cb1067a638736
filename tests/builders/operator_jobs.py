"""What the operator sees, for tests of its decisions."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from builders.jobs import a_spec
from disttrain.job import validation
from disttrain.job.credentials import Trust
from disttrain.job.names import Role
from disttrain_operator.kinds import WORKLOADS, Kind
from disttrain_operator.manifests import children, stored
from disttrain_operator.manifests.children import ChildKey, common
from disttrain_operator.manifests.config import ManifestConfig
from disttrain_operator.manifests.context import Context
from disttrain_operator.observed.records import ChildRecord, JobKey, JobRecord, PodRecord
from disttrain_operator.reconcile import desired
from disttrain_operator.signing.authorities import Authorities

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
KEY = JobKey("here", "digits")
UID = "0123456789-uid"
AUTHORITIES = Authorities(bytes(32), timedelta(hours=24))


def trust(uid: str) -> Trust:
    """Of whom the pods of a job get certificates."""
    return AUTHORITIES.trust(uid, "operator:8443")


def spec(**changed: Any) -> dict[str, Any]:
    """A spec of 2 shards and 3 replicas; fields replaced by those given."""
    return a_spec(**{"parameterServer": {"shards": 2}, "replicas": {"count": 3}, **changed})


def context(config: ManifestConfig | None = None, **changed: Any) -> Context:
    """A job ready to be made into objects."""
    manifest: dict[str, Any] = {
        "apiVersion": "disttrain.dev/v1alpha1",
        "kind": "DistTrainJob",
        "metadata": {"name": KEY.name, "namespace": KEY.namespace, "uid": UID},
        "spec": spec(**changed),
    }
    found = validation.validate(manifest)
    assert found.job is not None, found.findings
    return Context(KEY.name, KEY.namespace, UID, found.job, config or ManifestConfig())


def job(record: dict[str, Any] | None = None, **changed: Any) -> JobRecord:
    """A job as seen; `record` replaces fields of the record, the others fields of the spec."""
    given = dict(record or {})
    if "status" in given:
        status = given.pop("status")
        given |= {"written": json.dumps(status), "phase": str(status.get("phase", ""))}
    seen = JobRecord(
        key=KEY,
        uid=UID,
        version=1,
        generation=1,
        created=NOW,
        deleting=False,
        spec=json.dumps(spec(**changed)),
        outcome=None,
        restarts="",
        authority="",
        written="{}",
        phase="",
        strategy="",
        training=False,
    )
    return replace(seen, **given)


COMMON = frozenset(child.key for child in common(KEY.namespace, ManifestConfig()))
"""What is there of what the jobs of the namespace share."""
RUNNING: dict[Kind, dict[str, Any]] = {
    Kind.StatefulSet: {"wanted": 2, "ready": 2, "remaining": 2},
    Kind.ReplicaSet: {"wanted": 3, "ready": 3, "remaining": 3},
    Kind.Job: {"wanted": 1, "ready": 1, "remaining": 1, "started": NOW},
}


def made_children(record: JobRecord, config: ManifestConfig) -> dict[ChildKey, ChildRecord]:
    """All children of a job that runs, as an operator made them."""
    text, digest = desired.rendered(record, config), desired.of(record, config).digest
    replicas = desired.of(record, config).spec.replicas
    found = {}
    objects = stored.unpack(text)
    assert objects is not None
    for kept in objects.children:
        for each in (children.of_replica(kept, i) for _, i in children.keys(kept, replicas.count)):
            marks = {"objects": text, "templates": digest} if each.kind in WORKLOADS else {}
            state = RUNNING.get(each.kind, {})
            if each.workload is not None and each.workload.group is not None:
                state = dict.fromkeys(state, replicas.partitions) | {"uid": f"uid-{each.name}"}
            found[each.key] = child(each.kind, name=each.name, **marks, **state)
    return found


def child(kind: Kind, **changed: Any) -> ChildRecord:
    seen = ChildRecord(
        kind=kind,
        name=f"digits-{kind.name.lower()}",
        uid=f"uid-{kind.name}",
        version=1,
        job=KEY,
        owner_uid=UID,
        owned_by="DistTrainJob digits",
        deleting=False,
    )
    return replace(seen, **changed)


def pod(role: Role, index: int = 0, **changed: Any) -> PodRecord:
    """A pod of the job that runs."""
    seen = PodRecord(
        name=f"digits-{role}-{index}",
        uid=f"uid-{role}-{index}",
        version=1,
        job=KEY,
        owner_uid=UID,
        role=role,
        phase="Running",
        ready=True,
        gone_at=None,
        restarts=0,
        death=None,
        waiting="",
        detail="",
        unschedulable=False,
        outcome=None,
    )
    return replace(seen, **changed)
