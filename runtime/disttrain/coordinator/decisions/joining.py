"""How a process becomes a member. Decides; no I/O."""

from disttrain.checkpoint import model_map
from disttrain.coordinator.decisions import membership, news
from disttrain.coordinator.decisions.transaction import Transaction
from disttrain.coordinator.journal import job_entries, member_entries
from disttrain.coordinator.journal.group import Group
from disttrain.coordinator.leases import permutation
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.coordinator.phases import FailureReason
from disttrain.coordinator.protocol import content, messages, notices
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.settings import Settings
from disttrain.job import identity
from disttrain.transport.header import Role

MOST_REPLICAS = 4096
"""Indices that replicas may have, those of loops that bring their own data included."""


def join(
    transaction: Transaction, request: messages.Join
) -> messages.Joined | messages.Refused | messages.ComeAgain | None:
    """Names the process and its incarnation; the same instance gets the same answer.

    None: too early to tell; the process asks again.
    """
    if request.role not in {Role.REPLICA, Role.SHARD}:
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, f"{request.role.name} does not join")
    groups = transaction.state.groups(request.role)
    for group in groups.values():
        if (known := group.member_of(request.instance)) is not None:
            return membership.heard(transaction, known) or _heard_more(transaction, request, known)
    if request.instance in transaction.state.old_instances:
        message = f"instance {request.instance} was replaced by a newer incarnation"
        return _refused(messages.RefusalReason.OLD_INCARNATION, message)
    if refusal := _refusal(transaction, request):
        return refusal
    if _is_guest(request) and _is_early(transaction, request):
        return None
    return _take_in(transaction, request, groups)


def _heard_more(
    transaction: Transaction, request: messages.Join, known: MemberId
) -> messages.Joined | messages.Refused:
    """A process other than the first may tell its model once it knows how that is divided."""
    tells = request.partition > 0 and request.layout is not None
    refusal = _wrong_model(transaction, request) if tells else None
    return refusal or _joined(transaction, known)


def _is_early(transaction: Transaction, request: messages.Join) -> bool:
    """What the job's model is, its own replicas say, and to a joiner what its data holds.

    While a model is measured whose updates must all be in, nobody may push.
    """
    state = transaction.state
    is_first = all(one.is_guest for one in state.replicas.values())
    if _awaits_layout(transaction) or state.may_go_on:
        return True
    return is_first and identity.is_joiner(request.instance)


def _take_in(
    transaction: Transaction, request: messages.Join, groups: dict[int, Group]
) -> messages.Joined | messages.Refused | messages.ComeAgain:
    """Into the present incarnation of its group, or as the first member of the next one."""
    index = _choose_index(transaction, request) if request.index is None else request.index
    if index is None:
        return _refused(messages.RefusalReason.FULL, f"all {MOST_REPLICAS} places are taken")
    found = groups.get(index)
    if found is not None and found.has_room_for(request.partition, request.partitions):
        return _joined(transaction, _admit(transaction, request, index, found.incarnation))
    if found is not None:
        membership.fail(transaction, found, "a newer process asks to join")
    if not _brings_own_data(request):
        backoff = transaction.settings.restart_backoff
        later = transaction.failures.put_off(request, index, transaction.now, backoff)
        if later is not None:
            return later
    incarnation = membership.next_incarnation(transaction, request.role, index)
    return _joined(transaction, _admit(transaction, request, index, incarnation))


def _refusal(transaction: Transaction, request: messages.Join) -> messages.Refused | None:
    if transaction.state.phase.ended:
        return _refused(messages.RefusalReason.ENDED, f"the job is over: {transaction.state.phase}")
    count = _places(transaction, request)
    if request.index is not None and request.index >= count:
        message = f"index {request.index} of {request.role.name.lower()}s; there are {count}"
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, message)
    if problem := _wrong_partition(transaction, request):
        return _refused(messages.RefusalReason.NO_SUCH_INDEX, problem)
    if problem := _not_allowed(transaction, request):
        return _refused(messages.RefusalReason.NOT_ALLOWED, problem)
    if request.role is Role.REPLICA and (not request.partition or request.layout is not None):
        found = _wrong_data(transaction, request) or _too_many_portions(transaction, request)
        return found or _wrong_model(transaction, request)
    return None


def _places(transaction: Transaction, request: messages.Join) -> int:
    if request.role is Role.SHARD:
        return transaction.settings.shards
    # Of pods, and of those without an index, there is no fixed number: somebody scales them while
    # the job runs.
    is_named = request.index is not None and not request.place
    is_fixed = is_named and not _brings_own_data(request)
    return transaction.settings.replicas if is_fixed else MOST_REPLICAS


def _wrong_partition(transaction: Transaction, request: messages.Join) -> str:
    """Why there cannot be such a member; empty: there can."""
    is_alone = request.role is Role.SHARD or _brings_own_data(request)
    wanted = 1 if is_alone else transaction.settings.partitions
    if request.partitions != wanted or request.partition >= wanted:
        kind = request.role.name.lower()
        return f"process {request.partition} of {request.partitions}: a {kind} has {wanted}"
    if request.partitions > 1 and request.index is None:
        return "a member of several needs the index of its group"
    return ""


def _brings_own_data(request: messages.Join) -> bool:
    """A joined loop, which may be anybody's: what is wrong with it must not end the job.

    Of a replica of several processes perhaps only the first one has data.
    """
    is_first = request.role is Role.REPLICA and not request.partition
    return is_first and request.train_samples is None


def _not_allowed(transaction: Transaction, request: messages.Join) -> str:
    """Why who asks may not be a member, or bring data of its own; empty: it may."""
    if request.place in transaction.state.removed:
        return f"it was {notices.REMOVED}"
    if not _brings_own_data(request):
        return ""
    if identity.is_joiner(request.instance):
        # Samples of its own data count without a lease: by a number it would end the job.
        return "a joiner trains on the job's data; tell the number of its samples"
    return transaction.stages[-1].own_data_problem


def _is_guest(request: messages.Join) -> bool:
    """Nobody of the job started it: what is wrong with it must not end the job."""
    return _brings_own_data(request) or identity.is_joiner(request.instance)


def _wrong_data(transaction: Transaction, request: messages.Join) -> messages.Refused | None:
    samples = request.train_samples
    if samples is None:
        return None
    if samples == 0:
        message = "the training data is empty: dataset(Split.TRAIN) has length 0"
        return _fatal(transaction, request, FailureReason.EMPTY_DATA, message)
    difference = _other_data(transaction.state.data, request)
    if difference is None and _is_guest(request):
        difference = _other_content(transaction, request)
    if difference is not None:
        return _fatal(transaction, request, FailureReason.WRONG_DATA, difference)
    for stage in transaction.stages[transaction.stage :]:
        settings = stage.settings
        if settings.batch_size > samples:
            message = (
                f"{settings.batch_size_field} is {settings.batch_size}, the training data has "
                f"only {samples} samples: take {samples} or less"
            )
            return _fatal(transaction, request, FailureReason.BATCH_TOO_LARGE, message)
        if (problem := settings.problem_with_data(samples)) is not None:
            return _fatal(transaction, request, FailureReason.WRONG_DATA, problem)
    return None


def _awaits_layout(transaction: Transaction) -> bool:
    state = transaction.state
    return state.layout is None or state.awaits_division(transaction.settings.partitions)


def _other_data(known: DataLedger, request: messages.Join) -> str | None:
    """What of a replica's training data is not the job's; None: nothing, or nobody has told yet."""
    if not known.samples:
        return None
    if request.train_samples != known.samples:
        return (
            f"this replica sees {request.train_samples} training samples, the job has "
            f"{known.samples}: give every process the same data, or begin a new run for other data"
        )
    if request.sources != known.sources:
        return (
            "this replica's sources of training data have other names or numbers of samples than "
            "the job's: give every process the same ones, or begin a new run for other data"
        )
    return None


def _other_content(transaction: Transaction, request: messages.Join) -> str | None:
    """What of a guest's data holds something else than the job's; None: nothing that was read."""
    found = content.first_difference(transaction.state.content, request.content)
    if not found:
        return None
    return (
        f"the data is not the job's: {found}; copy the job's data to this machine, to where "
        "spec.task.arguments say that it is"
    )


def _too_many_portions(transaction: Transaction, request: messages.Join) -> messages.Refused | None:
    settings, samples = transaction.settings, request.train_samples or 0
    portion = _portion_size(settings, samples)
    portions = permutation.portion_count(samples, portion)
    if portions <= settings.most_portions:
        return None
    message = (
        f"{samples} training samples are {portions} portions of {portion}, and the coordinator "
        f"keeps account of at most {settings.most_portions}: take a larger "
        f"{settings.portion_size_field}"
    )
    return _fatal(transaction, request, FailureReason.WRONG_DATA, message)


def _portion_size(settings: Settings, samples: int) -> int:
    default = permutation.default_portion_size(samples, settings.batch_size, settings.replicas)
    return settings.portion_size or default


def _wrong_model(transaction: Transaction, request: messages.Join) -> messages.Refused | None:
    ours, theirs = transaction.state.layout, request.layout
    if theirs is None:
        return _refused(messages.RefusalReason.WRONG_MODEL, "a replica must describe its model")
    if theirs.partitions > transaction.settings.partitions:
        message = (
            f"this replica's model is divided among {theirs.partitions} processes, and replicas "
            f"of this job have {transaction.settings.partitions}"
        )
        return _refused(messages.RefusalReason.WRONG_MODEL, message)
    if ours is not None and _brings_own_data(request):
        ours = model_map.without_factors(ours)
    if ours is not None and _awaits_layout(transaction):
        ours, theirs = model_map.undivided(ours, theirs)
    difference = model_map.first_mismatch(ours, theirs) if ours is not None else None
    if difference is None:
        return None
    message = (
        f"this replica's model is not the job's: {difference}; model() has to build the same one "
        "in every process, and another one needs a new run"
    )
    return _fatal(transaction, request, FailureReason.WRONG_MODEL, message)


def _fatal(
    transaction: Transaction, request: messages.Join, reason: FailureReason, message: str
) -> messages.Refused:
    """Ends the job, unless it is a guest who is wrong."""
    if not _is_guest(request):
        transaction.fail(reason, message)
    wrong_data = reason is not FailureReason.WRONG_MODEL
    refusal = (
        messages.RefusalReason.WRONG_DATA if wrong_data else messages.RefusalReason.WRONG_MODEL
    )
    return _refused(refusal, message)


def _choose_index(transaction: Transaction, request: messages.Join) -> int | None:
    groups = transaction.state.groups(request.role)
    taken = {index for index, group in groups.items() if group.live}
    for index in taken if request.place else ():
        if groups[index].place == request.place:
            return index
    # Indices below are the job's own replicas, whose processes may be about to join.
    first = transaction.settings.replicas if _is_guest(request) else 0
    indices = range(first, _places(transaction, request))
    if transaction.settings.partitions > 1:
        # Their indices are not the coordinator's to choose: a job that grows takes the next ones.
        indices = indices[::-1]
    return next((index for index in indices if index not in taken), None)


def _admit(
    transaction: Transaction, request: messages.Join, index: int, incarnation: int
) -> MemberId:
    member = MemberId(
        role=request.role, index=index, partition=request.partition, incarnation=incarnation
    )
    # Of another machine: on this one it is nobody's address, or somebody else's.
    is_elsewhere = identity.is_joiner(request.instance)
    joined = member_entries.MemberJoined(
        member=member,
        partitions=request.partitions,
        instance=request.instance,
        pid=request.pid,
        address=request.data_address or "",
        metrics_address="" if is_elsewhere else request.metrics_address or "",
        own_data=_brings_own_data(request),
        place=request.place,
        now=transaction.now,
    )
    transaction.record(joined)
    transaction.watch.hear(member, transaction.now)
    if request.role is Role.REPLICA:
        if not _is_guest(request):
            _learn(transaction, request)
        return member
    membership.answer_fences(transaction, index, request.restored)
    if request.restored is not None:
        transaction.record(member_entries.ShardRestored(member=member, restored=request.restored))
    return member


def _learn(transaction: Transaction, request: messages.Join) -> None:
    if request.layout is not None and _awaits_layout(transaction):
        before = transaction.state.layout
        transaction.record(job_entries.LayoutKnown(layout=request.layout))
        if before is not None and before != request.layout:
            news.place_anew(transaction, request.layout)
    if request.content and not transaction.state.content:
        transaction.record(job_entries.ContentKnown(content=request.content))
    samples, settings = request.train_samples, transaction.settings
    if samples is None or (transaction.state.data.samples and transaction.state.test_samples):
        return
    known = job_entries.DataKnown(
        seed=settings.seed,
        samples=samples,
        portion_size=_portion_size(settings, samples),
        batch_size=settings.batch_size,
        test_samples=request.test_samples or 0,
        sources=request.sources,
        warm_start=None if transaction.following is None else settings.stop.samples,
    )
    transaction.record(known)


def _joined(transaction: Transaction, member: MemberId) -> messages.Joined:
    state = transaction.state
    known = news.of_members(transaction, member.role)
    return messages.Joined(
        member=member,
        seed=transaction.settings.seed,
        epoch=known.epoch,
        shards=known.shards or (),
        replicas=known.replicas or {},
        instances=known.instances,
        placement=news.placement(transaction),
        portion_size=state.data.portion_size,
        train_samples=state.data.samples,
        live_replicas=known.live_replicas,
        intervals=known.intervals,
    )


def _refused(reason: messages.RefusalReason, message: str) -> messages.Refused:
    return messages.Refused(reason=reason, message=message)
