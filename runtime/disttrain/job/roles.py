"""The processes of a job: coordinator, parameter server and replicas."""

import math
import re
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from disttrain.job.section import (
    ON_A_CLUSTER,
    ZERO_IS_NONE,
    Count,
    NotNegative,
    Positive,
    Section,
    refused,
)


class PodTemplate(Section):
    """A PodTemplateSpec, merged into the pods of a role as kubectl merges: lists by name.

    The container called `disttrain` is the one that runs the role. What the template holds is
    checked by the API server when the job is applied.
    """

    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """Labels and annotations of the pods."""

    spec: dict[str, JsonValue] = Field(default_factory=dict)
    """A PodSpec: containers, resources, nodeSelector, tolerations and so on."""


class Device(StrEnum):
    """Where a replica computes."""

    AUTO = "auto"
    """A GPU if the machine has one, else the CPU. Replicas on one machine share its first GPU."""
    CPU = "cpu"
    """The CPU, whatever the machine has."""
    CUDA = "cuda"
    """A GPU; the replica fails where there is none."""


class Durability(StrEnum):
    """What survives the death of a shard."""

    NONE = "none"
    """Nothing: the job fails with the shard."""
    CHECKPOINT = "checkpoint"
    """Everything up to the last checkpoint; the number of lost updates is reported."""


class Coordinator(Section):
    """The process that gives out work and decides the end."""

    lease_seconds: Positive = 30.0
    """Seconds for which a portion belongs to a replica that says nothing; then it is re-queued."""

    member_timeout_seconds: Positive = 60.0
    """Seconds of silence after which a process counts as dead and its late pushes are refused."""

    heartbeat_seconds: Positive = 1.0
    """Seconds between two signs of life of a process."""

    template: PodTemplate | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """The coordinator's pod. null: as the operator makes it."""


class ParameterServer(Section):
    """The shards: each holds a range of the parameters and its optimizer state."""

    shards: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Number of processes among which the parameters are divided; at least as many as a replica has
    partitions, or ranks with fsdp2, each of which has shards of its own. null: one, or one for each
    of these."""

    durability: Annotated[Durability, Field(strict=False)] = Durability.CHECKPOINT
    """What survives the death of a shard."""

    threads: Count | None = None
    """Compute threads per shard. null: the machine's cores are shared out among the processes."""

    template: PodTemplate | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """The pods of the shards. null: as the operator makes them."""


class Inner(StrEnum):
    """How the ranks of a replica train together."""

    DDP = "ddp"
    """Each has the whole model, and gradients are averaged before each step."""
    FSDP2 = "fsdp2"
    """Each has its rows of every parameter, the optimizer's state for them and shards of its own.
    Layers are gathered while they compute, by PyTorch's fully_shard. For models that are too large
    for one process; `ddp` sends less. The loss has to call the model."""


MOST_PARTITIONS = 1024
_GRID = "[1-9][0-9]{0,3}x[1-9][0-9]{0,3}"
_GRID_PATTERN = f"^{_GRID}$"
LayerName = Annotated[str, Field(min_length=1, max_length=255)]
_WAY = f"^(spatial|features|whole|{_GRID})$"


def _known_way(way: str) -> str:
    if not re.fullmatch(_WAY, way):
        message = f"must be spatial, features, whole or a grid as 1x2, got {way[:40]!r}"
        raise refused(message)
    return way


LayerWay = Annotated[
    str,
    AfterValidator(_known_way),
    Field(json_schema_extra={"pattern": _WAY, "maxLength": 9}),
]
Place = Annotated[int, Field(ge=0, le=MOST_PARTITIONS - 1)]


def _rows_and_columns(text: str) -> tuple[int, int] | None:
    """Of a grid; None if it is none."""
    if not re.fullmatch(_GRID, text):
        return None
    rows, columns = text.split("x")
    return int(rows), int(columns)


def _is_grid(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(_GRID_PATTERN, value):
        return value
    raise refused(f"must be rows and columns, as 2x3, got {value!r:.60}")


GridText = Annotated[
    str, Field(pattern=_GRID_PATTERN, max_length=len("9999x9999")), BeforeValidator(_is_grid)
]


class Replicas(Section):
    """The copies of the model that process data."""

    count: Annotated[int, Field(ge=1, le=4096)] = 1
    """Number of replicas."""

    given_partitions: Annotated[int | None, Field(ge=1, le=MOST_PARTITIONS)] = Field(
        default=None, alias="partitions"
    )
    """Processes of each replica, among which its model is divided. They start, fail and are
    started again together. The model has to be an nn.Sequential. null: as many as `grid` has, or
    one."""

    grid: GridText | None = None
    """Rows and columns of the partitions over an image, as `2x3`. It says how many there are, too.
    null: as square as their number lets them be."""

    partitioning: Annotated[dict[LayerName, LayerWay] | None, Field(max_length=1000)] = None
    """How layers are divided, by the name that they have in the model; of a container, all that
    is in it. `spatial`: by rows and columns. `features`: by output units. `whole`: not at all, the
    first partition computes it. `1x2`, or another grid: by rows and columns over the first
    partitions, as many as the grid has; the others compute nothing of it. null: all are divided as
    is usual for their kind."""

    whole_on: Annotated[dict[LayerName, Place] | None, Field(max_length=200)] = None
    """Layers that lie whole on one partition, by the name that they have in the model: the
    partition's number, from 0. Of a container, all that is in it. So a model is cut between layers.
    null: none but by `partitioning`."""

    micro_batches: Annotated[int | None, Field(ge=1, le=4096)] = None
    """Slices in which a batch goes through layers in a row that `wholeOn` puts on several
    partitions, so that they compute at the same time. null: as many as these partitions."""

    ranks: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processes of each replica, which start, fail and are started again together. Each computes
    its part of every batch, and all take the same step by the average gradient. batchSize stays
    that of the replica. Several need `localSteps`."""

    inner: Annotated[Inner | None, Field(strict=False)] = None
    """How several ranks train together; one trains alone. null: ddp."""

    device: Annotated[Device, Field(strict=False)] = Device.AUTO
    """Where a replica computes."""

    threads: Count | None = None
    """Compute threads per replica. null: the machine's cores are shared out among the processes."""

    call_timeout_seconds: Annotated[NotNegative | None, ZERO_IS_NONE] = 600.0
    """Seconds that one call of the task's code may take: a step's loss, its gradient, reading a
    batch. A replica in which it takes longer counts as hung and is started again. 0 or null: no
    end."""

    template: PodTemplate | None = Field(default=None, json_schema_extra=ON_A_CLUSTER)
    """The pods of the replicas. null: as the operator makes them."""

    @property
    def rows_and_columns(self) -> tuple[int, int] | None:
        """Of `grid`."""
        return None if self.grid is None else _rows_and_columns(self.grid)

    @property
    def own_grids(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of layers that `partitioning` gives a grid, by their names."""
        grids = {name: _rows_and_columns(way) for name, way in (self.partitioning or {}).items()}
        return {name: grid for name, grid in grids.items() if grid is not None}

    @property
    def partitions(self) -> int:
        """Processes among which the model is divided, by `partitions`, or else by `grid`."""
        return self.given_partitions or math.prod(self.rows_and_columns or (1,))

    @property
    def partitions_field(self) -> str:
        """Which of the two says so."""
        is_grid = self.given_partitions is None and self.grid is not None
        return "spec.replicas.grid" if is_grid else "spec.replicas.partitions"

    @property
    def parts(self) -> int:
        """Processes of each replica that have a part of its parameters, and shards of their own."""
        return self.partitions * (self.ranks if self.inner is Inner.FSDP2 else 1)

    @property
    def parts_said(self) -> str:
        """The same for a person, with the field."""
        if self.parts > self.partitions:
            return f"{self.parts} ranks (spec.replicas.ranks, with inner: fsdp2)"
        return f"{self.parts} partitions ({self.partitions_field})"

    @property
    def processes(self) -> int:
        """Of each replica: a group that lives and dies together."""
        return self.partitions * self.ranks
