"""Where and how often the state of a job is written."""

import re
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from disttrain.job import object_uri
from disttrain.job.section import (
    ON_A_CLUSTER,
    Count,
    ObjectName,
    ObjectNameOrNone,
    Positive,
    Quantity,
    Section,
    refused,
)

DEFAULT_URI: Final = "checkpoints/"

_LONGEST_NAME: Final = 255
"""Bytes of a folder's name that Linux takes."""

_OBJECT_STORE: Final = re.compile(r"[a-z][a-z0-9+]*://[^*?\[\]:\0]+")


class AccessMode(StrEnum):
    """Which pods may mount a volume."""

    READ_WRITE_MANY = "ReadWriteMany"
    """Pods on any node: what a job on several nodes needs."""
    READ_WRITE_ONCE = "ReadWriteOnce"
    """Pods on one node: all processes of the job then run on that node."""


class WhenDeleted(StrEnum):
    """What becomes of a claim that was made for a job."""

    RETAIN = "Retain"
    """It stays, and the checkpoints in it, until somebody deletes it."""
    DELETE = "Delete"
    """It is deleted with the job."""


class RetentionPolicy(Section):
    """How long a claim that was made for a job is kept."""

    when_deleted: Annotated[WhenDeleted, Field(strict=False)] = WhenDeleted.RETAIN
    """What becomes of the claim when the job is deleted."""


class CheckpointVolume(Section):
    """A volume that all processes of the job mount: a claim that is there, or one that is made."""

    alternatives = ("claimName", "size")

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim of the job's namespace. Exactly one of claimName and size is
    given."""

    size: Quantity | None = Field(default=None, examples=["10Gi"])
    """Size of a claim that is made for the job."""

    storage_class_name: ObjectNameOrNone | None = None
    """Storage class of the claim that is made. null: the cluster's default. An empty text: none, as
    for volumes that somebody has made beforehand."""

    access_modes: (
        Annotated[
            tuple[Annotated[AccessMode, Field(strict=False)], ...],
            Field(strict=False, min_length=1, max_length=2),
        ]
        | None
    ) = None
    """Access modes of the claim that is made. With ReadWriteOnce alone, all pods of the job run on
    one node. null: as the operator's default volume."""

    retention_policy: RetentionPolicy | None = None
    """How long the claim that is made is kept. null: as the operator's default volume."""

    def problem(self) -> str | None:
        problem = super().problem()
        made = " and ".join(name for name in self.given() if name not in self.alternatives)
        if problem is not None or self.claim_name is None or not made:
            return problem
        return f"{made} describes a claim that is made; take it away or give size, not claimName"


def _is_place(uri: str) -> str:
    if not object_uri.is_one(uri):
        return _is_path(uri)
    scheme = object_uri.scheme(uri)
    if scheme in object_uri.NO_STORES:
        raise refused(
            "must be a place that all processes reach, such as s3://bucket/prefix: what "
            f"{scheme}:// means, each would have for itself"
        )
    if not _OBJECT_STORE.fullmatch(uri):
        raise refused(
            "must be a path, a file:// uri or one of an object store such as s3://bucket/prefix, "
            f"without any of *?[]:, got '{uri}'"
        )
    return uri


def _is_path(uri: str) -> str:
    path = object_uri.on_disk(uri)
    if "\0" in path:
        raise refused("must be a path, which holds no character NUL")
    longest = max(len(part.encode()) for part in path.split("/"))
    if longest > _LONGEST_NAME:
        raise refused(
            f"must be a path whose folders have names of at most {_LONGEST_NAME} bytes, "
            f"got one of {longest}"
        )
    return uri


class Checkpoint(Section):
    """Checkpoints: the parameters, the optimizer's state and the coordinator's ledger."""

    uri: Annotated[str, AfterValidator(_is_place)] = Field(
        default=DEFAULT_URI, min_length=1, max_length=1000
    )
    """Place of the checkpoints: a path, relative to the output folder, a file:// uri, or one of an
    object store as fsspec knows them (s3://bucket/prefix), where each job has a place of its own.
    """

    every_seconds: Positive = 60.0
    """Seconds between two checkpoints."""

    keep_last: Count = 3
    """Complete checkpoints that are kept; older ones are deleted."""

    volume: CheckpointVolume | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """The volume of checkpoints and journals. null: a claim of the size that the operator's
    settings say, kept when the job is deleted."""

    @property
    def is_object_store(self) -> bool:
        return object_uri.is_one(self.uri)

    def problem(self) -> str | None:
        # The API server writes defaults out, so a given uri cannot be told from the default.
        if self.volume is None or self.uri == DEFAULT_URI:
            return None
        return f"volume is where checkpoints lie, so uri must be left out, got '{self.uri}'"
