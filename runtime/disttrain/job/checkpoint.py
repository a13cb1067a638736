"""Where and how often the state of a job is written."""

import re
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from disttrain.job import object_uri
from disttrain.job.checkpoint_volume import CheckpointVolume
from disttrain.job.cluster_field import ON_A_CLUSTER
from disttrain.job.section import Count, Positive, Section

DEFAULT_URI: Final = "checkpoints/"

_LONGEST_NAME: Final = 255
"""Bytes of a folder's name that Linux takes."""

_OBJECT_STORE: Final = re.compile(r"[a-z][a-z0-9+]*://[^*?\[\]:\0]+")


def _is_place(uri: str) -> str:
    if not object_uri.is_one(uri):
        return _is_path(uri)
    scheme = object_uri.scheme(uri)
    if scheme in object_uri.NO_STORES:
        raise PydanticCustomError(
            "not_shared",
            "must be a place that all processes reach, such as s3://bucket/prefix: what "
            "{scheme}:// means, each would have for itself",
            {"scheme": scheme},
        )
    if not _OBJECT_STORE.fullmatch(uri):
        raise PydanticCustomError(
            "no_place",
            "must be a path, a file:// uri or one of an object store such as s3://bucket/prefix, "
            "without any of *?[]:, got '{uri}'",
            {"uri": uri},
        )
    return uri


def _is_path(uri: str) -> str:
    path = object_uri.on_disk(uri)
    if "\0" in path:
        raise PydanticCustomError("no_path", "must be a path, which holds no character NUL")
    longest = max(len(part.encode()) for part in path.split("/"))
    if longest > _LONGEST_NAME:
        raise PydanticCustomError(
            "too_long_a_name",
            "must be a path whose folders have names of at most {most} bytes, got one of {found}",
            {"most": _LONGEST_NAME, "found": longest},
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

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        # The API server writes defaults out, so a given uri cannot be told from the default.
        if self.volume is None or self.uri == DEFAULT_URI:
            return self
        raise PydanticCustomError(
            "two_places",
            "volume is where checkpoints lie, so uri must be left out, got '{uri}'",
            {"uri": self.uri},
        )
