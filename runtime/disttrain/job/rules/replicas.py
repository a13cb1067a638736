"""Rules of replicas that are made of several processes, whatever the strategy."""

import math

from pydantic.alias_generators import to_camel

from disttrain.job.finding import Path, Severity
from disttrain.job.rule import STRATEGIES, Rule
from disttrain.job.spec import Spec

_BATCH_SIZE: Path = ("spec", "batchSize")
_RANKS: Path = ("spec", "replicas", "ranks")
_GRID: Path = ("spec", "replicas", "grid")
_PARTITIONS: Path = ("spec", "replicas", "partitions")

MOST_OF_A_JOB = 40
"""Parts of a model: with what strategies keep beside parameters and buffers, each has six vectors.
"""

_PLAN = "; `disttrain plan` takes more"


def _grid_is_of_the_partitions(spec: Spec) -> str | None:
    grid, given = spec.replicas.rows_and_columns, spec.replicas.given_partitions
    if grid is None:
        return None
    size = math.prod(grid)
    if given is None:
        return _too_many(size, _PLAN)
    if size == given:
        return None
    return (
        f"must be of {given} (spec.replicas.partitions), got {spec.replicas.grid}: it is of "
        f"{size}; leave one of the two out, or set spec.replicas.partitions to {size}"
    )


def _parts_have_shards(spec: Spec) -> str | None:
    shards, parts = spec.parameter_server.shards, spec.replicas.parts
    if shards is None or shards >= parts:
        return None
    return (
        f"must be at least {parts}, got {shards}: the parameters of each of "
        f"{spec.replicas.parts_said} lie on shards of their own; leave it out, or set it to {parts}"
    )


def _partitions_are_few(spec: Spec) -> str | None:
    return _too_many(spec.replicas.given_partitions or 1, _PLAN)


def _ranks_are_few(spec: Spec) -> str | None:
    ranks = spec.replicas.parts // spec.replicas.partitions
    return _too_many(ranks, " with inner: fsdp2; take fewer, or inner: ddp")


def _too_many(parts: int, remedy: str) -> str | None:
    if parts <= MOST_OF_A_JOB:
        return None
    return (
        f"must be at most {MOST_OF_A_JOB} in a job, got {parts}: each has vectors of its own, "
        f"which messages number in a byte{remedy}"
    )


def _layers_are_divided(spec: Spec) -> str | None:
    if not spec.replicas.partitioning or spec.replicas.partitions > 1:
        return None
    return "means nothing with one partition; set spec.replicas.partitions, or leave it out"


def _grids_of_layers_have_partitions(spec: Spec) -> str | None:
    partitions = spec.replicas.partitions
    for layer, grid in spec.replicas.own_grids.items():
        size = math.prod(grid)
        if size > partitions:
            rows, columns = grid
            return (
                f"{layer} is to be divided over {rows}x{columns}, which are {size} partitions, and "
                f"there are {partitions}; take a smaller grid, or set "
                f"{spec.replicas.partitions_field} to {_so_many(spec, size)}"
            )
    return None


def _so_many(spec: Spec, partitions: int) -> str:
    """Of the field that says how many there are."""
    if spec.replicas.partitions_field.endswith(".grid"):
        return f"one of {partitions} or more"
    return f"{partitions}"


def _whole_layers_have_partitions(spec: Spec) -> str | None:
    last = spec.replicas.partitions - 1
    for layer, place in (spec.replicas.whole_on or {}).items():
        if place > last:
            return (
                f"{layer} is to lie on partition {place}, and the last one is {last}; take another "
                f"one, or set {spec.replicas.partitions_field} to {_so_many(spec, place + 1)}"
            )
    return None


def _layers_have_one_way(spec: Spec) -> str | None:
    both = (spec.replicas.partitioning or {}).keys() & (spec.replicas.whole_on or {}).keys()
    if not both:
        return None
    return f"{min(both)} is in spec.replicas.partitioning, too; leave it out of one of them"


def _slices_have_layers(spec: Spec) -> str | None:
    if spec.replicas.micro_batches is None or spec.replicas.whole_on:
        return None
    return (
        "means nothing without spec.replicas.wholeOn; say which layers lie where, or leave it out"
    )


def _ranks_train_together(spec: Spec) -> str | None:
    ranks = spec.replicas.ranks
    kinds = spec.strategy.given().values()
    alone = next((kind.name for kind in kinds if not kind.has_ranks), None)
    if ranks == 1 or alone is None:
        return None
    return (
        f"must be 1 with {to_camel(alone)}, got {ranks}: only replicas of localSteps divide their "
        "batches; take more replicas (spec.replicas.count), or localSteps"
    )


def _is_divided_in_one_way(spec: Spec) -> str | None:
    ranks, partitions = spec.replicas.ranks, spec.replicas.partitions
    if ranks == 1 or partitions == 1:
        return None
    return (
        f"must be 1 with {partitions} partitions, got {ranks}: take ranks or partitions; for steps "
        "by the mean gradient of divided replicas take more of them, and localSteps with steps: 1, "
        "quorum: N and adopt: replace, N as spec.replicas.count"
    )


def _ranks_have_samples(spec: Spec) -> str | None:
    ranks, batch = spec.replicas.ranks, spec.batch_size
    if batch is None or batch >= ranks:
        return None
    return (
        f"must be at least spec.replicas.ranks ({ranks}), among which each batch is divided, got "
        f"{batch}; take fewer ranks, or a larger batch"
    )


def _inner_has_ranks(spec: Spec) -> str | None:
    replicas = spec.replicas
    if replicas.ranks > 1 or replicas.inner is None:
        return None
    return (
        f"{replicas.inner.value} means nothing with one rank, which trains alone; set "
        "spec.replicas.ranks to 2 or more, or leave it out"
    )


RULES = (
    Rule(
        f"`grid` is of as many partitions as `partitions` says; alone, of {MOST_OF_A_JOB} at most.",
        _GRID,
        (_PARTITIONS,),
        _grid_is_of_the_partitions,
    ),
    Rule(
        f"A replica of a job has at most {MOST_OF_A_JOB} partitions.",
        _PARTITIONS,
        (),
        _partitions_are_few,
    ),
    Rule(
        "There are at least as many shards as a replica has partitions, or ranks with `fsdp2`.",
        ("spec", "parameterServer", "shards"),
        (("spec", "replicas"),),
        _parts_have_shards,
    ),
    Rule(
        "`partitioning` says how several partitions divide a model.",
        ("spec", "replicas", "partitioning"),
        (_PARTITIONS, _GRID),
        _layers_are_divided,
    ),
    Rule(
        "A grid in `partitioning` has at most as many partitions as a replica.",
        ("spec", "replicas", "partitioning"),
        (_PARTITIONS, _GRID),
        _grids_of_layers_have_partitions,
    ),
    Rule(
        "Layers of `wholeOn` lie on partitions that a replica has.",
        ("spec", "replicas", "wholeOn"),
        (_PARTITIONS, _GRID),
        _whole_layers_have_partitions,
    ),
    Rule(
        "A layer is in `partitioning` or in `wholeOn`.",
        ("spec", "replicas", "wholeOn"),
        (("spec", "replicas", "partitioning"),),
        _layers_have_one_way,
    ),
    Rule(
        "`microBatches` are of layers that `wholeOn` places.",
        ("spec", "replicas", "microBatches"),
        (("spec", "replicas", "wholeOn"),),
        _slices_have_layers,
    ),
    Rule(
        "Only replicas of `localSteps` have several ranks.",
        _RANKS,
        (),
        _ranks_train_together,
        sections=STRATEGIES,
    ),
    Rule(
        "A replica has several ranks or several partitions.",
        _RANKS,
        (_PARTITIONS, _GRID),
        _is_divided_in_one_way,
    ),
    Rule(
        f"A replica with `fsdp2` has at most {MOST_OF_A_JOB} ranks.",
        _RANKS,
        (("spec", "replicas", "inner"),),
        _ranks_are_few,
    ),
    Rule(
        "Each rank has samples of a batch.",
        _BATCH_SIZE,
        (_RANKS,),
        _ranks_have_samples,
    ),
    Rule(
        "`inner` says how several ranks train; one rank trains alone.",
        ("spec", "replicas", "inner"),
        (_RANKS,),
        _inner_has_ranks,
        Severity.WARNING,
    ),
)
