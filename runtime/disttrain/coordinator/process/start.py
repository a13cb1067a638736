"""The state that a coordinator starts with: from its journal, from a checkpoint, or new."""

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


def first_state(config: LaunchConfig, store: Store) -> tuple[State, Origin]:
    """A checkpoint to resume comes before the journal, which belongs to the run that ended.

    Raises JournalDamaged, WrongJournal, ManifestChanged, and CheckpointError for a store that does
    not answer.
    """
    found, origin = _found(config, store)
    found.job_uid = config.job_uid
    found.next_checkpoint = max(found.next_checkpoint, store.next_number())
    return found, origin


def _found(config: LaunchConfig, store: Store) -> tuple[State, Origin]:
    if config.resume_from is not None:
        return _resumed(config, store, config.resume_from), Origin.CHECKPOINT
    replayed = journals.replay(config.checkpoints)
    if replayed is not None:
        _check_job(replayed.state, config.job_uid, str(config.checkpoints))
        return replayed.state, Origin.JOURNAL
    _require_none_of_its_own(store, config)
    return State(), Origin.NEW


def _resumed(config: LaunchConfig, store: Store, checkpoint: Path) -> State:
    ledger = _read_ledger(store, checkpoint)
    if why := changes.impossible(ledger, config.job.spec):
        raise ManifestChanged(why)
    source = str(config.checkpoints) if config.checkpoints.uri else str(checkpoint)
    return resume.from_ledger(ledger, source, config.job.spec.shards)


def _require_none_of_its_own(store: Store, config: LaunchConfig) -> None:
    """Without a journal a job that has checkpoints would begin anew, and delete them in time."""
    own = [one.manifest for one in store.list() if one.manifest.job.uid == config.job_uid]
    if own:
        message = (
            f"{config.checkpoints} has checkpoint {own[-1].number} of this job and not its "
            "journal: put the journal back, or go on from the checkpoint with disttrain resume"
        )
        raise JournalDamaged(message)


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
