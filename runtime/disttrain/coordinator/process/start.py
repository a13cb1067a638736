"""The state that a coordinator starts with: from its journal, from a checkpoint, or new."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pydantic import ValidationError

from disttrain.checkpoint.errors import CheckpointRefused
from disttrain.checkpoint.stores import Store
from disttrain.coordinator.errors import JournalDamaged, ManifestChanged, WrongJournal
from disttrain.coordinator.journal import changes, journals, resume, state
from disttrain.coordinator.journal.state import State
from disttrain.launch.config import LaunchConfig


class Origin(StrEnum):
    """Where the state came from."""

    NEW = "new"
    JOURNAL = "journal"
    """The coordinator itself was restarted."""
    CHECKPOINT = "checkpoint"
    """The whole job was started again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """What to begin with."""

    state: State
    origin: Origin


def first_state(config: LaunchConfig, store: Store) -> Start:
    """A checkpoint to resume comes before the journal, which belongs to the run that ended.

    Raises JournalDamaged, WrongJournal, ManifestChanged, and CheckpointError for a store that does
    not answer.
    """
    start = _found(config, store)
    start.state.job_uid = config.job_uid
    start.state.next_checkpoint = max(start.state.next_checkpoint, store.next_number())
    return start


def _found(config: LaunchConfig, store: Store) -> Start:
    checkpoint, shards = config.resume_from, config.job.spec.parameter_server.shards
    if checkpoint is not None:
        ledger = _read_ledger(store, checkpoint)
        _require_possible(ledger, config)
        source = str(config.checkpoints) if config.checkpoints.uri else str(checkpoint)
        resumed = resume.from_ledger(ledger, source, shards)
        return Start(state=resumed, origin=Origin.CHECKPOINT)
    replayed = journals.replay(config.checkpoints)
    if replayed is not None:
        _check_job(replayed.state, config.job_uid, str(config.checkpoints))
        return Start(state=replayed.state, origin=Origin.JOURNAL)
    _require_none_of_its_own(store, config)
    return Start(state=State(), origin=Origin.NEW)


def _require_none_of_its_own(store: Store, config: LaunchConfig) -> None:
    """Without a journal a job that has checkpoints would begin anew, and delete them in time."""
    own = [one.manifest for one in store.list() if one.manifest.job.uid == config.job_uid]
    if own:
        message = (
            f"{config.checkpoints} has checkpoint {own[-1].number} of this job and not its "
            "journal: put the journal back, or go on from the checkpoint with disttrain resume"
        )
        raise JournalDamaged(message)


def _require_possible(ledger: State, config: LaunchConfig) -> None:
    why = changes.impossible(ledger, config.job.spec)
    if why is not None:
        raise ManifestChanged(why)


def _check_job(found: State, job_uid: str, folder: str) -> None:
    if found.job_uid not in {"", job_uid}:
        message = (
            f"{folder} is the journal of job {found.job_uid}, this is job {job_uid}; "
            "give each job a checkpoint folder of its own"
        )
        raise WrongJournal(message)


def _read_ledger(store: Store, checkpoint: Path) -> State:
    try:
        return state.from_json(store.ledger(store.read(checkpoint)))
    except (CheckpointRefused, ValidationError) as error:
        message = (
            f"the ledger of {checkpoint} cannot be read ({error}); resume from another checkpoint"
        )
        raise JournalDamaged(message) from error
