"""How a process becomes a member. Decides; no I/O."""

from disttrain.checkpoint import model_map
from disttrain.coordinator.decisions import membership, news
from disttrain.coordinator.decisions.turn import Turn
from disttrain.coordinator.journal import job_entries, member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.phases import LifeState
from disttrain.coordinator.protocol import messages
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.settings import Settings
from disttrain.transport.header import Role

MOST_REPLICAS = 4096
"""Indices that replicas may have, those of loops that bring their own data included."""


def join(turn: Turn, request: messages.Join) -> messages.Joined | messages.Refused | None:
    """Names the process and its life; the same instance gets the same answer.

    None: too early to tell; the process asks again.
    """
    if request.role not in {Role.REPLICA, Role.SHARD}:
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, f"{request.role.name} does not join")
    groups = turn.state.groups(request.role)
    for group in groups.values():
        if (known := group.member_of(request.instance)) is not None:
            return membership.heard(turn, known) or _joined(turn, known)
    if request.instance in turn.state.old_instances:
        message = f"instance {request.instance} was replaced by a newer life"
        return _refused(messages.RefusalReason.OLD_INCARNATION, message)
    if refusal := _refusal(turn, request):
        return refusal
    if _brings_own_data(request) and (turn.state.layout is None or turn.state.may_go_on):
        # What the job's model is, its own replicas say; and while a model is measured whose
        # updates must all be in, nobody may push.
        return None
    return _take_in(turn, request, groups)


def _take_in(
    turn: Turn, request: messages.Join, groups: dict[int, Group]
) -> messages.Joined | messages.Refused:
    """Into the present incarnation of its group, or as the first member of the next one."""
    index = _choose_index(turn, request) if request.index is None else request.index
    if index is None:
        return _refused(messages.RefusalReason.FULL, f"all {MOST_REPLICAS} places are taken")
    found = groups.get(index)
    if found is not None and found.has_room_for(request.partition):
        return _joined(turn, _admit(turn, request, index, found.incarnation))
    if found is not None:
        membership.lose(turn, found, LifeState.DEAD, "a newer life has joined")
    incarnation = membership.next_incarnation(turn, request.role, index)
    return _joined(turn, _admit(turn, request, index, incarnation))


def _refusal(turn: Turn, request: messages.Join) -> messages.Refused | None:
    if turn.state.phase.ended:
        return _refused(messages.RefusalReason.ENDED, f"the job is over: {turn.state.phase}")
    count = _places(turn, request)
    if request.index is not None and request.index >= count:
        message = f"index {request.index} of {request.role.name.lower()}s; there are {count}"
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, message)
    if problem := _wrong_partition(turn, request):
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, problem)
    if _brings_own_data(request) and (problem := turn.stages[-1].own_data_problem):
        return _refused(messages.RefusalReason.NOT_ALLOWED, problem)
    if request.role is Role.REPLICA and not request.partition:
        found = _wrong_data(turn, request) or _too_many_portions(turn, request)
        return found or _wrong_model(turn, request)
    return None


def _places(turn: Turn, request: messages.Join) -> int:
    if request.role is Role.SHARD:
        return turn.settings.shards
    # Of pods, and of those without an index, there is no fixed number: somebody scales them while
    # the job runs.
    is_named = request.index is not None and not request.place
    is_fixed = is_named and not _brings_own_data(request)
    return turn.settings.replicas if is_fixed else MOST_REPLICAS


def _wrong_partition(turn: Turn, request: messages.Join) -> str:
    """Why there cannot be such a member; empty: there can."""
    is_alone = request.role is Role.SHARD or _brings_own_data(request)
    wanted = 1 if is_alone else turn.settings.partitions
    if request.partitions != wanted or request.partition >= wanted:
        kind = request.role.name.lower()
        return f"partition {request.partition} of {request.partitions}: a {kind} has {wanted}"
    if request.partitions > 1 and request.index is None:
        return "a member of several needs the index of its group"
    return ""


def _brings_own_data(request: messages.Join) -> bool:
    """A plain loop, which may be anybody's: what is wrong with it must not end the job.

    Of a replica of several processes only the first one has data.
    """
    is_first = request.role is Role.REPLICA and not request.partition
    return is_first and request.train_samples is None


def _wrong_data(turn: Turn, request: messages.Join) -> messages.Refused | None:
    samples = request.train_samples
    if samples is None:
        return None
    if samples == 0:
        message = "the training data is empty: dataset(Split.TRAIN) has length 0"
        return _fatal(turn, messages.FailureReason.EMPTY_DATA, message)
    for stage in turn.stages[turn.stage :]:
        settings = stage.settings
        if settings.batch_size > samples:
            message = (
                f"{settings.batch_size_field} is {settings.batch_size}, the training data has "
                f"only {samples} samples: take {samples} or less"
            )
            return _fatal(turn, messages.FailureReason.BATCH_TOO_LARGE, message)
    known = turn.state.data.samples
    if known and samples != known:
        message = (
            f"this replica sees {samples} training samples, the job has {known}: give every "
            "process the same data, or begin a new run for other data"
        )
        return _fatal(turn, messages.FailureReason.WRONG_DATA, message)
    return None


def _too_many_portions(turn: Turn, request: messages.Join) -> messages.Refused | None:
    settings, samples = turn.settings, request.train_samples or 0
    portion = _portion_size(settings, samples)
    portions = permutation.portion_count(samples, portion)
    if portions <= settings.most_portions:
        return None
    message = (
        f"{samples} training samples are {portions} portions of {portion}, and the coordinator "
        f"keeps account of at most {settings.most_portions}: take a larger "
        f"{settings.portion_size_field}"
    )
    return _fatal(turn, messages.FailureReason.WRONG_DATA, message)


def _portion_size(settings: Settings, samples: int) -> int:
    default = permutation.default_portion_size(samples, settings.batch_size, settings.replicas)
    return settings.portion_size or default


def _wrong_model(turn: Turn, request: messages.Join) -> messages.Refused | None:
    ours, theirs = turn.state.layout, request.layout
    if theirs is None:
        return _refused(messages.RefusalReason.WRONG_MODEL, "a replica must describe its model")
    difference = model_map.first_mismatch(ours, theirs) if ours is not None else None
    if difference is None:
        return None
    message = (
        f"this replica's model is not the job's: {difference}; model() has to build the same one "
        "in every process, and another one needs a new run"
    )
    if _brings_own_data(request):
        return _refused(messages.RefusalReason.WRONG_MODEL, message)
    return _fatal(turn, messages.FailureReason.WRONG_MODEL, message)


def _fatal(turn: Turn, reason: messages.FailureReason, message: str) -> messages.Refused:
    turn.fail(reason, message)
    wrong_data = reason is not messages.FailureReason.WRONG_MODEL
    refusal = (
        messages.RefusalReason.WRONG_DATA if wrong_data else messages.RefusalReason.WRONG_MODEL
    )
    return _refused(refusal, message)


def _choose_index(turn: Turn, request: messages.Join) -> int | None:
    groups = turn.state.groups(request.role)
    taken = {index for index, group in groups.items() if group.live}
    for index in taken if request.place else ():
        if groups[index].place == request.place:
            return index
    # Indices below are the job's own replicas, whose processes may be about to join.
    first = turn.settings.replicas if _brings_own_data(request) else 0
    return next((i for i in range(first, _places(turn, request)) if i not in taken), None)


def _admit(turn: Turn, request: messages.Join, index: int, incarnation: int) -> MemberId:
    member = MemberId(
        role=request.role, index=index, partition=request.partition, incarnation=incarnation
    )
    joined = member_entries.MemberJoined(
        member=member,
        partitions=request.partitions,
        instance=request.instance,
        pid=request.pid,
        address=request.data_address or "",
        metrics_address=request.metrics_address or "",
        own_data=_brings_own_data(request),
        place=request.place,
        now=turn.now,
    )
    turn.record(joined)
    turn.watch.hear(member, turn.now)
    if request.role is Role.REPLICA:
        _learn(turn, request)
        return member
    membership.answer_fences(turn, index, request.restored)
    if request.restored is not None:
        turn.record(member_entries.ShardRestored(member=member, restored=request.restored))
    return member


def _learn(turn: Turn, request: messages.Join) -> None:
    if turn.state.layout is None and request.layout is not None:
        turn.record(job_entries.LayoutKnown(layout=request.layout))
    samples, settings = request.train_samples, turn.settings
    if samples is None or (turn.state.data.samples and turn.state.test_samples):
        return
    known = job_entries.DataKnown(
        seed=settings.seed,
        samples=samples,
        portion_size=_portion_size(settings, samples),
        batch_size=settings.batch_size,
        test_samples=request.test_samples or 0,
        warm_start=None if turn.following is None else settings.stop.samples,
    )
    turn.record(known)


def _joined(turn: Turn, member: MemberId) -> messages.Joined:
    state = turn.state
    known = news.of_members(turn, member.role)
    return messages.Joined(
        member=member,
        seed=turn.settings.seed,
        epoch=known.epoch,
        shards=known.shards or (),
        replicas=known.replicas or {},
        placement=news.placement(turn),
        portion_size=state.data.portion_size,
        live_replicas=known.live_replicas,
        intervals=known.intervals,
    )


def _refused(reason: messages.RefusalReason, message: str) -> messages.Refused:
    return messages.Refused(reason=reason, message=message)
