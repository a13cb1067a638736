"""Reads what a run with `record: true` logged. Refuses what cannot be replayed, and says why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import numpy as np

from disttrain.audit import reading
from disttrain.audit.evidence import Incarnation, Records
from disttrain.audit.reading import Logs
from disttrain.checkpoint import stores
from disttrain.checkpoint.reading import Checkpoint
from disttrain.coordinator.journal import journals
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.leases.data_ledger import DataLedger
from disttrain.errors import FinalError
from disttrain.job import defaults, manifest_file, names
from disttrain.job.roles import Device
from disttrain.job.spec import Audit, Spec
from disttrain.launch import config as launch_config
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import NotARunFolder
from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.parameter_server import records
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.records import Environment
from disttrain.replica import task_calls
from disttrain.replica.ledger import Kind
from disttrain.replica.task_calls import TaskCalls
from disttrain.state.layout import ModelLayout
from disttrain.state.placement import Placement, place_as_formerly

_COMPUTE_KINDS = (
    Kind.STEP,
    Kind.COMPUTED,
    Kind.NOT_FINITE,
    Kind.ADOPTED,
    Kind.FETCHING_NOW,
    Kind.FETCHING_AGAIN,
    Kind.FETCHING_BESIDE,
    Kind.MEASURED,
    Kind.FLUSHED,
)
_NAME_OF_A_FETCHED_CHUNK = ("sender", "incarnation", "sequence", "vector", "chunk")


class NotReplayable(FinalError):
    """The run was not recorded, or did something that a replay does not follow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recording:
    """A run that can be replayed."""

    spec: Spec
    task: TaskCalls
    data: DataLedger
    """Of the coordinator at the end of the run: how leases name samples."""
    device: Device
    replica_threads: int
    shard_threads: int
    chunk_bytes: int
    shards: tuple[Incarnation, ...]
    """What the only incarnation of each did, in its order."""
    replicas: Mapping[SenderIncarnation, Records]
    """What the compute thread of each incarnation did, in its order."""
    placement: Placement
    checkpoint: Checkpoint | None
    """The last one."""

    @property
    def seed(self) -> int:
        return self.data.seed


def read(folder: Path) -> Recording:
    """The record of a run folder. Raises NotARunFolder, NotReplayable, TaskError."""
    run = RunFolder(folder.absolute())
    if (lack := run.why_none(of_training=True)) is not None:
        raise NotARunFolder(lack)
    job = manifest_file.load_job(run.job)
    if job.spec.strategy.sandblaster is not None:
        raise NotReplayable(
            f"{folder} is the run of a batch method, which is not recorded: "
            "run its manifest again, it gives the same bits"
        )
    if job.spec.replicas.ranks > 1:
        raise NotReplayable(
            f"{folder} is the run of replicas of {job.spec.replicas.ranks} ranks, whose gradients "
            "one process adds up in another order; record a run with replicas.ranks: 1"
        )
    if job.spec.replicas.partitions > 1:
        raise NotReplayable(
            f"{folder} is the run of models divided over {job.spec.replicas.partitions} "
            "partitions, whose sums one process adds up in another order; record a run with "
            "replicas.partitions: 1"
        )
    if not job.spec.record:
        # An audit that is left out is full with a record.
        full = "" if job.spec.audit in {None, Audit.FULL} else " --set spec.audit=full"
        raise NotReplayable(
            f"{folder} was not recorded: with record: false and audit: {defaults.audit(job.spec)} "
            "its ledgers do not hold the order of events; run the job with "
            f"--set spec.record=true{full}"
        )
    shard = launch_config.read(run.config(names.shard_name(0)))
    # The first process of a replica has done all that is recorded.
    first = names.member_name(0, 0, job.spec.replicas.processes)
    replica = launch_config.read(run.config(first))
    state = _state(replica)
    noted = _environment(run.ledger)
    found = _logs(run.ledger)
    return Recording(
        spec=job.spec,
        task=task_calls.load(job, replica.task_folder),
        data=state.data,
        device=replica.device,
        replica_threads=replica.threads,
        shard_threads=shard.threads,
        chunk_bytes=noted.chunk_bytes,
        shards=_shards(found, job.spec.shards),
        replicas=_replicas(found),
        placement=_placement(state, job.spec.shards),
        checkpoint=_checkpoint(replica),
    )


def _checkpoint(config: LaunchConfig) -> Checkpoint | None:
    store = stores.open_store(config.checkpoints)
    latest = store.latest()
    if latest is not None:
        # Of another command, which may have been killed.
        store.drop_copies()
        store.bring(latest)
    return latest


def _state(config: LaunchConfig) -> State:
    """The coordinator's, at the end of the run."""
    replayed = journals.replay(config.checkpoints)
    if replayed is None or not replayed.state.data.samples or replayed.state.layout is None:
        raise NotReplayable("the run ended before it knew its data; there is nothing to replay")
    return replayed.state


def _placement(state: State, shards: int) -> Placement:
    layout = state.layout or ModelLayout(tensors=())
    return state.placement or place_as_formerly(layout, shards)


def _environment(folder: Path) -> Environment:
    """Those of the run; the same bits come out only if they are this process's too."""
    noted = records.read_environment(folder)
    if noted is None:
        raise NotReplayable(
            f"{folder / records.ENVIRONMENT_FILE} does not tell how the run was recorded; "
            "record it again with this version"
        )
    here = records.present_environment(noted.chunk_bytes)
    if here != noted:
        raise NotReplayable(
            f"the run was recorded with PyTorch {noted.torch} and its {noted.cpu} kernels, this is "
            f"PyTorch {here.torch} with {here.cpu}: other bits would come out; replay it there"
        )
    return noted


def _logs(folder: Path) -> Logs:
    found = reading.logs(folder)
    if found.unreadable:
        raise NotReplayable(f"{found.unreadable[0]} cannot be replayed")
    for incarnation in chain(*found.shards.values(), *found.replicas.values()):
        if incarnation.missing:
            raise NotReplayable(
                f"{incarnation.file} lacks {incarnation.missing} records, since the disk was full; "
                "nothing can follow"
            )
    return found


def _shards(found: Logs, shards: int) -> tuple[Incarnation, ...]:
    return tuple(_shard(index, found.shards.get(index, ())) for index in range(shards))


def _shard(index: int, incarnations: Sequence[Incarnation]) -> Incarnation:
    name = names.shard_name(index)
    if len(incarnations) != 1:
        raise NotReplayable(
            f"{name} has {len(incarnations)} incarnations; "
            "a replay follows no rollback and no resumed run, "
            "only runs in which each shard lived once"
        )
    (incarnation,) = incarnations
    if len(incarnation.folded):
        raise NotReplayable(
            f"{incarnation.file} is folded; record the run with --set spec.audit=full"
        )
    if len(incarnation.of(shard_ledger.Kind.RESTORED, shard_ledger.Kind.LOST)):
        raise NotReplayable(
            f"{name} began with a checkpoint; a replay follows runs from their beginning"
        )
    return replace(incarnation, records=_without_repeats(incarnation.records))


def _without_repeats(records: Records) -> Records:
    """A chunk that was given twice to one fetch counts as it was given first."""
    fetched = np.flatnonzero(records["kind"] == shard_ledger.Kind.CHUNK_FETCHED)
    names = [records[field][fetched] for field in _NAME_OF_A_FETCHED_CHUNK]
    # Plain columns sort much faster than structured records. The sort is stable, so the first of
    # those with the same name stays the first.
    order = np.lexsort(names)
    is_repeat = np.ones(len(fetched), np.bool_)
    is_repeat[:1] = False
    for name in names:
        is_repeat[1:] &= name[order][1:] == name[order][:-1]
    return np.delete(records, fetched[order][is_repeat])


def _replicas(found: Logs) -> dict[SenderIncarnation, Records]:
    incarnations = list(chain(*found.replicas.values()))
    for incarnation in incarnations:
        if len(incarnation.of(Kind.ACKNOWLEDGED)) and not len(incarnation.of(Kind.STEP)):
            raise NotReplayable(
                f"{incarnation.file} is of a loop of its own, whose data a replay does not have"
            )
    return {incarnation.sender: incarnation.of(*_COMPUTE_KINDS) for incarnation in incarnations}
