"""What a manifest says about the pods of a role on Kubernetes."""

from pydantic import Field, JsonValue

from disttrain.job.section import Section


class PodTemplate(Section):
    """A PodTemplateSpec, merged into the pods of a role as kubectl merges: lists by name.

    The container called `disttrain` is the one that runs the role. What the template holds is
    checked by the API server when the job is applied.
    """

    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """Labels and annotations of the pods."""

    spec: dict[str, JsonValue] = Field(default_factory=dict)
    """A PodSpec: containers, resources, nodeSelector, tolerations and so on."""
