"""Where checkpoints lie on a cluster."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from disttrain.job.cluster_field import ObjectName, Quantity
from disttrain.job.section import EXACTLY_ONE, Section, require_one


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

    model_config = ConfigDict(json_schema_extra={EXACTLY_ONE: ["claimName", "size"]})

    claim_name: ObjectName | None = None
    """A PersistentVolumeClaim of the job's namespace. Exactly one of claimName and size is
    given."""

    size: Quantity | None = Field(default=None, examples=["10Gi"])
    """Size of a claim that is made for the job."""

    storage_class_name: ObjectName | None = None
    """Storage class of the claim that is made. null: the cluster's default."""

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

    @model_validator(mode="after")
    def _is_one_claim(self) -> Self:
        given = {"claimName": self.claim_name, "size": self.size}
        require_one([name for name, value in given.items() if value is not None], list(given))
        return self

    @model_validator(mode="after")
    def _describes_what_is_made(self) -> Self:
        described = {
            "storageClassName": self.storage_class_name,
            "accessModes": self.access_modes,
            "retentionPolicy": self.retention_policy,
        }
        given = [name for name, value in described.items() if value is not None]
        if self.claim_name is None or not given:
            return self
        raise PydanticCustomError(
            "claim_is_there",
            "{given} describes a claim that is made; take it away or give size, not claimName",
            {"given": " and ".join(given)},
        )
