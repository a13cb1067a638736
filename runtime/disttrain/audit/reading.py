"""Reads a run folder into evidence. The only file of the audit that touches the disk.

Replays read the same logs by it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from disttrain.audit.evidence import Evidence, Incarnation, SavedCheckpoint, Summary
from disttrain.checkpoint import names as checkpoint_names
from disttrain.checkpoint import reading as checkpoint_reading
from disttrain.checkpoint import stores
from disttrain.checkpoint.element_types import DTYPES
from disttrain.checkpoint.errors import CheckpointRefused
from disttrain.checkpoint.reading import Checkpoint, Restore
from disttrain.coordinator.errors import JournalDamaged
from disttrain.coordinator.journal import journals
from disttrain.coordinator.journal.state import State
from disttrain.job import defaults, manifest_file, names
from disttrain.job.location import Location
from disttrain.job.spec import Audit, Spec
from disttrain.launch import config as launch_config
from disttrain.launch.errors import NotARunFolder
from disttrain.launch.run_folder import RunFolder
from disttrain.parameter_server import ledger as shard_ledger
from disttrain.parameter_server.ledger import Kind as ShardKind
from disttrain.replica import ledger as replica_ledger
from disttrain.replica.ledger import Kind as ReplicaKind
from disttrain.state.placement import TRAINED, Placement, Range
from disttrain.state.vector import Vector
from disttrain.telemetry import record_file
from disttrain.telemetry.record_file import FileName

MOST_UPDATES = 2**27
"""That one log may be about: told apart again, those of a shard take 15 GB."""

_READ_ELEMENTS = 1 << 20
_WITHOUT_COORDINATOR = frozenset({"phase", "reason", "message"})
"""What summary.json holds when the launcher wrote it, because the coordinator could not."""


class NothingToAudit(NotARunFolder):
    """The folder holds a run without the ledgers of shards."""


@dataclass(slots=True)
class Logs:
    """Of all incarnations, by increasing incarnation, by index."""

    shards: Mapping[int, tuple[Incarnation, ...]]
    replicas: Mapping[int, tuple[Incarnation, ...]]
    unreadable: list[str]
    """Files that could not be understood, and why; `read` adds those that are no logs."""


def read(folder: Path, elsewhere: Sequence[Path] = ()) -> Evidence:
    """Everything that the checks need. Raises NotARunFolder and InvalidManifest.

    `elsewhere`: output folders of joiners, or the `ledger` folders in them.
    """
    run = RunFolder(folder.absolute())
    # Asked first: a run that ends meanwhile has not ended in all that is read.
    is_running = run.is_held()
    if (lack := run.why_none()) is not None:
        raise NotARunFolder(lack)
    job = manifest_file.load_job(run.job)
    if defaults.audit(job.spec) is Audit.OFF:
        raise NothingToAudit(
            f"{folder} kept no ledgers to check: its spec.audit is off; "
            "run the job with --set spec.audit=summary, or full"
        )
    if not job.spec.shards:
        raise NothingToAudit(
            f"{folder} is the run of a job without shards, whose promises these are"
        )
    if (lack := run.why_none(of_training=True)) is not None:
        raise NotARunFolder(lack)
    checkpoints = run.checkpoints(job)
    found = logs(run.ledger, [_ledger_of(run, each) for each in elsewhere])
    state = _state(checkpoints, found)
    batches = job.spec.strategy.sandblaster
    return Evidence(
        record=job.spec.record,
        joiners_from=job.spec.replicas.count if run.invitations.is_dir() else None,
        is_running=is_running,
        shards=found.shards,
        replicas=found.replicas,
        pushes_seldom=job.spec.strategy.rule.pushes_seldom,
        fetched_vectors=_fetched_vectors(job.spec, None if state is None else state.placement),
        batch_method=batches is not None,
        warm_start=batches is not None and batches.warm_start is not None,
        batch_is_everything=batches is None or batches.batch_size == "all",
        summary=_summary(run.summary, found),
        train_samples=None if state is None else state.data.samples or None,
        checkpoints=_checkpoints(checkpoints),
        has_trained=state is None or state.began is not None,
        last_sign_ns=_last_sign_ns(run),
        unreadable=tuple(found.unreadable),
    )


def _fetched_vectors(spec: Spec, placement: Placement | None) -> frozenset[int]:
    if placement is None:
        return frozenset({TRAINED})
    rules = [stage.strategy.rule for stage in defaults.stages(spec)]
    wanted = {name for rule in rules for name in (rule.computes_on, rule.evaluates)}
    numbers = (placement.number(each) for each in placement.vectors if each.name in wanted)
    return frozenset({TRAINED, *numbers})


def _ledger_of(run: RunFolder, folder: Path) -> Path:
    """The ledger of a joiner of this run. Raises NotARunFolder."""
    joiner = RunFolder(folder.absolute())
    ledger = joiner.ledger if joiner.ledger.is_dir() else joiner.path
    config = joiner.config(names.Role.REPLICA.value)
    if config.exists() and launch_config.read(config).job_uid != run.read_record().job_uid:
        message = f"--ledger: {folder} is of a joiner of another run; give one that joined this run"
        raise NotARunFolder(message)
    if not ledger.is_dir() or not any(map(_is_of_a_replica, ledger.iterdir())):
        message = f"--ledger: {folder} holds no log of a replica; give a joiner's output folder"
        raise NotARunFolder(message)
    return ledger


def _is_of_a_replica(path: Path) -> bool:
    name = record_file.parse_name(path)
    return name is not None and name.process == names.replica_name(name.index)


def logs(folder: Path, elsewhere: Sequence[Path] = ()) -> Logs:
    """Of a run's ledger folder, and of replicas elsewhere. Of two copies the longer one counts."""
    unreadable: list[str] = []
    copies = {path.name: path for path in folder.iterdir()}
    for path in (path for each in elsewhere for path in each.iterdir() if _is_of_a_replica(path)):
        before = copies.get(path.name)
        if before is not None and not path.read_bytes().startswith(before.read_bytes()):
            unreadable.append(f"{path} (there is another log of this name: {before})")
        else:
            copies[path.name] = path
    found = ((path, record_file.parse_name(path)) for path in copies.values())
    named = [(path, name) for path, name in found if name is not None]
    # Replicas' first: what they were told of by then is in the logs of shards, if the run goes on.
    named.sort(key=lambda each: each[1].process)
    incarnations = [_incarnation(path, name, unreadable) for path, name in named]
    return Logs(
        shards=_by_index(incarnation for incarnation in incarnations if incarnation.is_shard),
        replicas=_by_index(incarnation for incarnation in incarnations if not incarnation.is_shard),
        unreadable=unreadable,
    )


def _incarnation(path: Path, name: FileName, unreadable: list[str]) -> Incarnation:
    """Without any record if the log cannot be read."""
    is_shard = name.process == names.shard_name(name.index)
    record = shard_ledger.RECORD if is_shard else replica_ledger.RECORD
    bare = Incarnation(
        process=name.process,
        index=name.index,
        incarnation=name.incarnation,
        records=np.zeros(0, record),
    )
    try:
        ends_in_half = record_file.ends_in_half(path, record)
        incarnation = replace(
            bare, records=record_file.read(path, record), ends_in_half=ends_in_half
        )
        why = damage(incarnation)
    except OSError as error:
        why = error.strerror
    if why is None:
        return incarnation
    unreadable.append(f"{path} ({why})")
    return bare


def _by_index(incarnations: Iterable[Incarnation]) -> dict[int, tuple[Incarnation, ...]]:
    of_files = groupby(sorted(incarnations, key=_place), lambda each: _place(each)[:2])
    ordered = [_together(tuple(files)) for _, files in of_files]
    return {
        index: tuple(own) for index, own in groupby(ordered, lambda incarnation: incarnation.index)
    }


def _place(incarnation: Incarnation) -> tuple[int, int, int, str]:
    return incarnation.index, incarnation.incarnation, len(incarnation.process), incarnation.process


def _together(files: Sequence[Incarnation]) -> Incarnation:
    """One incarnation, whose partitions each have a file; the first one's says most."""
    first, *others = files
    if not others:
        return first
    return replace(
        first,
        records=np.concatenate([each.records for each in files]),
        ends_in_half=any(each.ends_in_half for each in files),
        shards=tuple(frozenset(each.each()["shard"].tolist()) for each in files),
    )


def _summary(file: Path, found: Logs) -> Summary | None:
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_bytes())
        if isinstance(content, dict) and content.keys() <= _WITHOUT_COORDINATOR:
            return None
        return Summary.model_validate(content)
    except (OSError, ValueError) as error:
        found.unreadable.append(f"{file} ({str(error).splitlines()[0]})")
        return None


def _last_sign_ns(run: RunFolder) -> int:
    return max((f.stat().st_mtime_ns for f in (run.status, run.summary) if f.exists()), default=0)


def _state(location: Location, found: Logs) -> State | None:
    try:
        replayed = journals.replay(location)
    except JournalDamaged as error:
        found.unreadable.append(str(error))
        return None
    except OSError as error:
        found.unreadable.append(f"{error.filename} ({error.strerror})")
        return None
    return None if replayed is None else replayed.state


def _checkpoints(location: Location) -> tuple[SavedCheckpoint, ...]:
    if not location.uri:
        return _in_folder(location.folder)
    with TemporaryDirectory() as folder:
        store = stores.open_store(Location(Path(folder), location.uri))
        found = store.list()
        for checkpoint in found:
            store.bring(checkpoint)
        return tuple(_checkpoint(one.path, one.manifest.number) for one in found)


def _in_folder(folder: Path) -> tuple[SavedCheckpoint, ...]:
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    numbers = {path: checkpoint_names.number(path.name) for path in paths}
    return tuple(_checkpoint(path, number) for path, number in numbers.items() if number)


def _checkpoint(path: Path, number: int) -> SavedCheckpoint:
    try:
        checkpoint = checkpoint_reading.verified(path)
        return SavedCheckpoint(
            number=number,
            versions={holder.index: holder.version for holder in checkpoint.manifest.holders},
            not_finite=_not_finite(checkpoint),
        )
    except CheckpointRefused as error:
        return SavedCheckpoint(number=number, versions={}, damage=str(error))


def _not_finite(checkpoint: Checkpoint) -> tuple[str, ...]:
    placement = checkpoint.manifest.placement
    with Restore(checkpoint) as restore:
        found = [
            str(vector)
            for vector in placement.vectors
            if vector.is_of_a_model and not _is_finite(restore, vector, placement.elements(vector))
        ]
    return tuple(sorted(found))


def _is_finite(restore: Restore, vector: Vector, elements: int) -> bool:
    for first in range(0, elements, _READ_ELEMENTS):
        end = min(first + _READ_ELEMENTS, elements)
        values = np.empty(end - first, DTYPES[vector.element_type])
        restore.read(vector, Range(first, end), values.data)
        if not np.isfinite(values).all():
            return False
    return True


def damage(incarnation: Incarnation) -> str | None:
    """Why the log cannot be compared; None: it can."""
    kinds = ShardKind if incarnation.is_shard else ReplicaKind
    unknown = np.setdiff1d(incarnation.records["kind"], list(kinds))
    if len(unknown):
        return f"it is damaged: it holds a record of the unknown kind {unknown[0]}"
    return _impossible_numbers(incarnation)


def _impossible_numbers(incarnation: Incarnation) -> str | None:
    losses = incarnation.of(ShardKind.LOST)["samples"] if incarnation.is_shard else ()
    highest = max(
        np.max(incarnation.records[incarnation.shape.number], initial=0), np.max(losses, initial=0)
    )
    if highest > MOST_UPDATES:
        return _too_many(f"update {highest}")
    first, last = incarnation.folded["first"], incarnation.folded[incarnation.shape.number]
    if np.any(first > last):
        return "it is damaged: a folded record ends before it begins"
    updates = int(np.sum(last - first + 1))
    if updates > MOST_UPDATES:
        return _too_many(f"{updates} updates")
    return None


def _too_many(what: str) -> str:
    return f"it tells of {what}, and at most {MOST_UPDATES} can be compared"
