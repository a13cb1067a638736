"""What each journal entry means: the only place that changes the state. Pure and total.

Replaying a prefix of the journal gives the state that the coordinator had when it wrote its last
entry; so `kill -9` at any point loses at most what nobody had been told.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import singledispatch
from typing import Any

from disttrain.coordinator.journal import batch_fold, entries, totals
from disttrain.coordinator.journal.batch_entries import BatchEntry
from disttrain.coordinator.journal.state import (
    Fencing,
    IssuedOrder,
    Life,
    LifeState,
    OpenCheckpoint,
    Phase,
    Saved,
    State,
)
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.protocol.fields import LostUpdates, MemberId, Position, SenderPosition
from disttrain.coordinator.protocol.orders import Admit, Checkpoint
from disttrain.transport.header import Role

_EVALUATIONS_KEPT = 100
_INSTANCES_KEPT = 1000


def fold(state: State, journal: Iterable[entries.Entry]) -> State:
    """The state after these entries; `state` itself is changed."""
    for entry in journal:
        apply(state, entry)
    return state


def apply(state: State, entry: entries.Entry) -> None:
    """Changes the state by one entry."""
    _apply(entry, state)


def life(state: State, member: MemberId) -> Life | None:
    """The member's process, if this life is its latest one."""
    lives = state.replicas if member.role is Role.REPLICA else state.shards
    found = lives.get(member.index)
    return found if found is not None and found.incarnation == member.incarnation else None


@singledispatch
def _apply(entry: object, state: State) -> None:
    message = f"no meaning for {entry!r} in {state.phase}"
    raise TypeError(message)


def _meaning(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return _apply.register(kind)


@_meaning(entries.Restarted)
def _(_: entries.Restarted, state: State) -> None:
    totals.add_restart(state.totals, Role.COORDINATOR)
    for role in (Role.REPLICA, Role.SHARD):
        _change_members(state, role)
    batch_fold.take_over(state)


@_meaning(entries.PhaseChanged)
def _(entry: entries.PhaseChanged, state: State) -> None:
    state.phase = entry.phase
    state.reason = entry.reason or state.reason
    state.message = entry.message or state.message
    if entry.phase is Phase.RUNNING:
        _train(state, entry.now)
    if entry.phase is Phase.CHECKPOINTING:
        state.final_checkpoint = state.next_checkpoint
    if entry.phase.ended:
        state.ended = entry.now
        state.orders.clear()


def _train(state: State, now: float) -> None:
    """Training begins, or goes on because the exported model misses its target."""
    if state.began is None:
        state.began = now
    else:
        state.evaluated_epoch = max(state.evaluated_epoch, state.data.epochs_done)
    state.reason = ""
    state.evaluation_tried = now
    state.final_failures = 0
    state.evaluations = [replace(found, final=False) for found in state.evaluations]


@_meaning(entries.StopAsked)
def _(_: entries.StopAsked, state: State) -> None:
    state.stopping = True


@_meaning(entries.DataKnown)
def _(entry: entries.DataKnown, state: State) -> None:
    state.test_samples = entry.test_samples
    state.warm_start.samples = entry.warm_start
    if state.data.samples == 0:
        state.data = DataLedger(
            seed=entry.seed,
            samples=entry.samples,
            portion_size=entry.portion_size,
            batch_size=entry.batch_size,
        )


@_meaning(entries.LayoutKnown)
def _(entry: entries.LayoutKnown, state: State) -> None:
    state.layout = entry.layout


@_meaning(entries.Placed)
def _(entry: entries.Placed, state: State) -> None:
    state.placement = entry.placement


@_meaning(entries.MemberJoined)
def _(entry: entries.MemberJoined, state: State) -> None:
    role, index = entry.member.role, entry.member.index
    lives = state.replicas if role is Role.REPLICA else state.shards
    if index in lives and lives[index].incarnation > state.first_incarnation:
        totals.add_restart(state.totals, role)
    if index in lives:
        state.old_instances.append(lives[index].instance)
        del state.old_instances[:-_INSTANCES_KEPT]
    _change_members(state, role)
    name = totals.name(role, index)
    state.incarnations[name] = max(entry.member.incarnation, state.incarnations.get(name, 0))
    lives[index] = Life(
        role=role,
        index=index,
        incarnation=entry.member.incarnation,
        instance=entry.instance,
        pid=entry.pid,
        address=entry.address,
        metrics_address=entry.metrics_address,
        place=entry.place,
        joined=entry.now,
        own_data=entry.own_data,
    )


def _change_members(state: State, role: Role) -> None:
    """Everybody who knows the members of this role has to hear of it."""
    if role is Role.REPLICA:
        state.replicas_epoch += 1
    else:
        state.shards_epoch += 1


@_meaning(entries.ShardRestored)
def _(entry: entries.ShardRestored, state: State) -> None:
    shard = state.shards[entry.member.index]
    shard.initialised = entry.restored.initialised
    for number in entry.restored.damaged:
        totals.note_damaged(state.totals, number)
    for sender in entry.restored.senders:
        _count_resumed(state, sender.sender)
        if sender.acknowledged:
            of = sender.sender
            lost = LostUpdates(index=of.index, incarnation=of.incarnation, lost=sender.lost)
            totals.set_updates_lost(state.totals, entry.member.index, lost)


@_meaning(entries.LossCorrected)
def _(entry: entries.LossCorrected, state: State) -> None:
    totals.set_updates_lost(state.totals, entry.shard, entry.sender)


def _count_resumed(state: State, sender: SenderPosition) -> None:
    """Samples that the restored shards hold and the resumed ledger does not are done again."""
    if sender.incarnation > state.first_incarnation:
        return
    key = f"{sender.index}.{sender.incarnation}"
    known = state.resumed_samples.get(key, 0)
    state.data.samples_repeated += max(0, sender.samples - known)
    state.resumed_samples[key] = max(known, sender.samples)


@_meaning(entries.MemberLost)
def _(entry: entries.MemberLost, state: State) -> None:
    found = life(state, entry.member)
    if found is None:
        return
    found.state = entry.state
    found.reason = entry.reason
    _change_members(state, entry.member.role)
    totals.add_report(state.totals, entry.member, entry.replica, entry.shard)
    for number in [n for n, order in state.orders.items() if order.member == entry.member]:
        del state.orders[number]
    if entry.member.role is not Role.REPLICA:
        return
    batch_fold.lose(state, entry.member)
    totals.add_non_finite(state.totals, entry.member.index, found.non_finite)
    found.non_finite = 0
    if entry.shards:
        fencing = Fencing(
            index=entry.member.index,
            incarnation=entry.member.incarnation,
            waiting=list(entry.shards),
        )
        state.fencings.append(fencing)
    elif entry.state is LifeState.DEAD:
        # No shard has values yet, so nothing of this replica can have been applied.
        state.data.settle(entry.member, Position(), Position())


@_meaning(entries.ShardConfigured)
def _(entry: entries.ShardConfigured, state: State) -> None:
    if found := life(state, entry.member):
        found.configured = True


@_meaning(entries.ShardInitialised)
def _(entry: entries.ShardInitialised, state: State) -> None:
    if found := life(state, entry.member):
        found.initialised = True


@_meaning(entries.OrderIssued)
def _(entry: entries.OrderIssued, state: State) -> None:
    state.next_order = entry.id + 1
    if isinstance(entry.order, Admit):
        return
    state.orders[entry.id] = IssuedOrder(
        id=entry.id, member=entry.member, order=entry.order, shards=entry.shards
    )
    batch_fold.give(state, entry.order)


@_meaning(entries.OrderClosed)
def _(entry: entries.OrderClosed, state: State) -> None:
    state.orders.pop(entry.id, None)


@_meaning(entries.EpochOpened)
def _(_: entries.EpochOpened, state: State) -> None:
    state.data.open_epoch()


@_meaning(entries.LeaseGranted)
def _(entry: entries.LeaseGranted, state: State) -> None:
    state.data.grant(entry.member, entry.lease)


@_meaning(entries.Progressed)
def _(entry: entries.Progressed, state: State) -> None:
    found = life(state, entry.member)
    if found is None:
        return
    _count_own_data(state, found, entry.progress.samples)
    state.data.advance(entry.member, entry.progress)
    found.progress = entry.progress
    found.non_finite = max(found.non_finite, entry.non_finite)


def _count_own_data(state: State, found: Life, samples: int) -> None:
    more = samples - found.progress.samples
    if found.own_data and more > 0:
        state.data.samples_outside += more
        found.progress = replace(found.progress, samples=samples)


@_meaning(entries.LeasesExpired)
def _(entry: entries.LeasesExpired, state: State) -> None:
    state.data.expire(entry.member)
    batch_fold.lose(state, entry.member)


@_meaning(entries.Drained)
def _(entry: entries.Drained, state: State) -> None:
    if found := life(state, entry.member):
        at_end = state.phase not in {Phase.WAITING, Phase.RUNNING} and not state.may_go_on
        _count_own_data(state, found, entry.progress.samples)
        state.data.finish(entry.member, entry.progress, at_end=at_end)
        found.progress = entry.progress
        found.drained = True


@_meaning(entries.FenceAnswered)
def _(entry: entries.FenceAnswered, state: State) -> None:
    sender = entry.sender
    dead = MemberId(role=Role.REPLICA, index=sender.index, incarnation=sender.incarnation)
    if found := life(state, dead):
        _count_own_data(state, found, sender.samples)
    for fencing in state.fencings:
        mine = (fencing.index, fencing.incarnation) == (sender.index, sender.incarnation)
        if not mine or entry.shard not in fencing.waiting:
            continue
        fencing.waiting.remove(entry.shard)
        state.totals.partial_chunks += entry.partial_chunks
        fencing.lowest = min(fencing.lowest or sender.position, sender.position)
        fencing.highest = max(fencing.highest or sender.position, sender.position)
        if not fencing.waiting:
            state.data.settle(dead, fencing.lowest, fencing.highest)
    state.fencings = [fencing for fencing in state.fencings if fencing.waiting]


@_meaning(entries.CheckpointBegun)
def _(entry: entries.CheckpointBegun, state: State) -> None:
    state.checkpoint = OpenCheckpoint(number=entry.number, began=entry.now, samples=state.samples)
    state.checkpoint_tried = entry.now
    state.next_checkpoint = entry.number + 1
    batch_fold.open_checkpoint(state)


@_meaning(entries.ShardPartWritten)
def _(entry: entries.ShardPartWritten, state: State) -> None:
    if state.checkpoint is not None and state.checkpoint.number == entry.number:
        state.checkpoint.parts[entry.shard] = entry.part
    blocked = max(state.totals.blocking_seconds, entry.part.blocking_seconds)
    state.totals.blocking_seconds = blocked


@_meaning(entries.CheckpointEnded)
def _(entry: entries.CheckpointEnded, state: State) -> None:
    opened, state.checkpoint = state.checkpoint, None
    batch_fold.end_checkpoint(state, entry.number, is_committed=entry.committed)
    if entry.committed:
        state.last_checkpoint = entry.number
        state.saved = None if opened is None else _saved(opened)
        state.totals.checkpoints += 1
        state.checkpoint_failure = ""
    else:
        state.totals.checkpoint_failures += 1
        state.final_failures += state.phase is Phase.CHECKPOINTING
        state.checkpoint_failure = entry.message
    for number, issued in list(state.orders.items()):
        if isinstance(issued.order, Checkpoint) and issued.order.number == entry.number:
            del state.orders[number]


def _saved(opened: OpenCheckpoint) -> Saved:
    versions = {shard: part.version for shard, part in opened.parts.items()}
    return Saved(number=opened.number, time=opened.began, samples=opened.samples, versions=versions)


@_meaning(entries.EvaluationBegun)
def _(entry: entries.EvaluationBegun, state: State) -> None:
    state.evaluating = True
    state.evaluating_samples = state.samples
    state.evaluation_tried = entry.now
    state.evaluated_epoch = max(state.evaluated_epoch, entry.epoch)
    if state.batch is not None:
        state.batch.evaluated_iteration = state.batch.course.method.progress.iteration


@_meaning(entries.EvaluationEnded)
def _(entry: entries.EvaluationEnded, state: State) -> None:
    state.evaluating = state.evaluating and entry.evaluation.final
    state.totals.evaluations += 1
    state.evaluations.append(entry.evaluation)
    del state.evaluations[:-_EVALUATIONS_KEPT]
    totals.remember_best(state.best, entry.evaluation.measures)


_apply.register(BatchEntry, batch_fold.apply)
