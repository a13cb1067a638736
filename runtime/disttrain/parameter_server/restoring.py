"""What a shard finds beside the values that were restored: how far each of its senders was."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from disttrain.checkpoint.reading import Checkpoint
from disttrain.holder import restoring
from disttrain.holder.restoring import Restored, TableForm, Wanted
from disttrain.holder.values import Notes, Table, Values
from disttrain.parameter_server import deliveries, quorum, step_counts
from disttrain.parameter_server.deliveries import NOTHING, Delivered, SenderIncarnation
from disttrain.parameter_server.quorum import Gathered
from disttrain.parameter_server.step_counts import StepCounts

_DELIVERIES, _STEPS, _GATHERED = "deliveries", "steps", "gathered"
"""Names of the at-most-once table, of counts of updates, and of what waits for a merge."""
TABLES = {
    _DELIVERIES: TableForm(deliveries.COLUMNS),
    # Only some update rules count.
    _STEPS: TableForm(step_counts.COLUMNS, may_lack=True),
    _GATHERED: TableForm(quorum.COLUMNS, may_lack=True),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RestoredShard:
    """A shard as it was."""

    checkpoint: int
    values: Values
    version: int
    samples: int
    update_rule: str
    """What it was made with."""
    delivered: dict[SenderIncarnation, Delivered] = field(default_factory=dict)
    steps: Sequence[Sequence[int]] = ()
    """Rows of `StepCounts`, perhaps of several shards."""
    gathered: Gathered = field(default_factory=dict)
    """As in `ShardState`."""
    description: Mapping[str, str] = field(default_factory=dict)
    """What the file says beside its tensors; of several, one of them."""
    is_resharded: bool = False
    """The checkpoint is of other shards."""
    damaged: tuple[int, ...] = ()
    """Newer checkpoints, which could not be restored."""
    saved_by: int = 0
    """The incarnation that saved it at its stop; 0: it is of a checkpoint."""
    previous: Mapping[int, Notes] = field(default_factory=dict)
    """Of shards of the checkpoint for whose losses this one answers: `restoring.answers_for`."""


def restore(
    candidates: list[Checkpoint], wanted: Wanted, damaged: tuple[int, ...] = ()
) -> RestoredShard | None:
    """As `holder.restoring.restore`."""
    restored = restoring.restore(candidates, wanted, damaged)
    return None if restored is None else _shard(restored)


def _shard(restored: Restored) -> RestoredShard:
    sources = list(restored.sources.values())
    return RestoredShard(
        checkpoint=restored.checkpoint,
        update_rule=restored.update_rule,
        values=restored.values,
        version=min(notes.version for notes in sources),
        samples=min(int(notes.metadata.get("samples", "0")) for notes in sources),
        delivered=merge([delivered_of(notes) for notes in sources]),
        steps=[row for notes in sources for row in steps_of(notes)],
        gathered=gathered_of(sources),
        description=sources[0].metadata,
        is_resharded=restored.is_resharded,
        damaged=restored.damaged,
        previous=restored.previous,
    )


def tables_of(
    delivered: dict[SenderIncarnation, Delivered], steps: StepCounts, gathered: Gathered
) -> dict[str, Table]:
    rows = deliveries.to_rows(delivered)
    found = {_DELIVERIES: Table(columns=deliveries.COLUMNS, rows=rows)}
    if counted := steps.rows():
        found[_STEPS] = Table(columns=step_counts.COLUMNS, rows=counted)
    if gathered:
        found[_GATHERED] = Table(columns=quorum.COLUMNS, rows=quorum.as_rows(gathered))
    return found


def delivered_of(notes: Notes) -> dict[SenderIncarnation, Delivered]:
    return deliveries.from_rows(notes.tables[_DELIVERIES].rows)


def steps_of(notes: Notes) -> Sequence[Sequence[int]]:
    return notes.tables[_STEPS].rows if _STEPS in notes.tables else ()


def gathered_of(sources: Sequence[Notes]) -> Gathered:
    tables = [notes.tables[_GATHERED] for notes in sources if _GATHERED in notes.tables]
    return quorum.from_rows([row for table in tables for row in table.rows])


def merge(tables: list[dict[SenderIncarnation, Delivered]]) -> dict[SenderIncarnation, Delivered]:
    """What every one of several shards has of a sender: the least of them.

    One shard's table stays as it is. With several, pushes under way are forgotten: they belong to
    incarnations that are over, since the number of shards only changes when the whole job is
    resumed. Samples are the most of them: what any shard holds and is done again counts as
    repeated. The mean of the staleness is over what all of them saw.
    """
    if len(tables) == 1:
        return tables[0]
    least: dict[SenderIncarnation, Delivered] = {}
    for incarnation in sorted(set().union(*tables)):
        states = [table.get(incarnation, NOTHING) for table in tables]
        behind = min(states, key=lambda state: state.sequence)
        least[incarnation] = Delivered(
            sequence=behind.sequence,
            pushes=min(state.pushes for state in states),
            lease=behind.lease,
            lease_offset=behind.lease_offset,
            samples=max(state.samples for state in states),
            staleness_sum=sum(state.staleness_sum for state in states),
            staleness_count=sum(state.staleness_count for state in states),
        )
    return least
