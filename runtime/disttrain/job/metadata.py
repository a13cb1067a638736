"""What a job is called, and what the API server says about it."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from disttrain.job.section import Section, WholeNumber

LONGEST_NAME = 40
"""Characters. Kubernetes allows 63 for a pod's name, and the roles append to the job's name."""

NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"


def _is_dns_label(name: str) -> str:
    if len(name) <= LONGEST_NAME and re.fullmatch(NAME_PATTERN[1:-1], name):
        return name
    raise PydanticCustomError(
        "bad_name",
        "must be at most {longest} characters a-z, 0-9 and '-', begin with a letter and end "
        "with a letter or digit, got '{name}'",
        {"longest": LONGEST_NAME, "name": name},
    )


class Metadata(Section):
    """What the job is called. Whatever else the API server adds is accepted and not kept."""

    name: Annotated[str, AfterValidator(_is_dns_label)] = Field(examples=["digits"])
    """Name of the job: a DNS label (RFC 1035) of at most 40 characters."""

    labels: dict[str, str] = Field(default_factory=dict)
    """Free texts by which jobs are selected."""

    annotations: dict[str, str] = Field(default_factory=dict)
    """Free texts for tools and people."""

    namespace: str | None = None
    """Namespace of the job on a cluster. null: that of the kubectl context."""

    uid: str | None = None
    """Set by the API server: tells a job from a later one of the same name."""

    generation: WholeNumber | None = Field(default=None, exclude=True)
    """Set by the API server: number of changes of the spec."""

    resource_version: str | None = Field(default=None, exclude=True)
    """Set by the API server: changes with every write."""

    creation_timestamp: str | None = Field(default=None, exclude=True)
    """Set by the API server."""

    deletion_timestamp: str | None = Field(default=None, exclude=True)
    """Set by the API server once the job is being deleted."""

    deletion_grace_period_seconds: WholeNumber | None = Field(default=None, exclude=True)
    """Set by the API server once the job is being deleted."""

    generate_name: str | None = Field(default=None, exclude=True)
    """Beginning of a name that the API server completes; the name itself is required here."""

    self_link: str | None = Field(default=None, exclude=True)
    """Set by old API servers."""

    finalizers: list[JsonValue] | None = Field(default=None, exclude=True)
    """What delays the deletion of the job; DistTrain adds none."""

    owner_references: list[JsonValue] | None = Field(default=None, exclude=True)
    """What the job is deleted with."""

    managed_fields: list[JsonValue] | None = Field(default=None, exclude=True)
    """Set by the API server: who wrote which field."""
