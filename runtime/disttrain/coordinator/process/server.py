"""The coordinator's process: what `disttrain run` and a pod start, and the state it begins with."""

import os
import random
import signal
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from disttrain.checkpoint import stores
from disttrain.checkpoint.errors import CheckpointRefused, StoreAway, StoreDenied
from disttrain.checkpoint.manifest import JobIdentity
from disttrain.checkpoint.stores import Store
from disttrain.coordinator import strategies
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.transaction import Places
from disttrain.coordinator.errors import JournalDamaged, ManifestChanged, Superseded, WrongJournal
from disttrain.coordinator.journal import journals, resume, state
from disttrain.coordinator.journal.state import State
from disttrain.coordinator.phases import Phase
from disttrain.coordinator.process.checkpoints import Checkpoints
from disttrain.coordinator.process.cluster_status import ApiServer, ClusterStatus
from disttrain.coordinator.process.reporting import Reporting, RunFiles
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.process.service import Parts, Service
from disttrain.coordinator.protocol import leave_notices
from disttrain.coordinator.protocol.leave_notices import LeaveNoticeWatch
from disttrain.coordinator.status.cluster_status import JobObject, Patches
from disttrain.job import defaults
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import BEST_MODEL, MODEL, RunFolder
from disttrain.telemetry import logs
from disttrain.transport.factory import open_transport
from disttrain.transport.interface import Listener

LOG = logs.get(__name__)

_THIS_BOOT = Path("/proc/sys/kernel/random/boot_id")
_LET_IN_SECONDS = 10.0
"""An object store's credentials may come a moment after the pod; then the first incarnation gives
up."""
_ASK_AGAIN_SECONDS = 1.0

_EXIT_CODES = {
    Phase.COMPLETE: ExitCode.COMPLETE,
    Phase.STOPPED: ExitCode.INTERRUPTED,
    Phase.FAILED: ExitCode.FAILED,
}
"""A full disk may take no summary: then this is all that the launcher hears. Of a job that goes on
later, INTERRUPTED."""


class Origin(StrEnum):
    """Where the state came from."""

    NEW = "new"
    JOURNAL = "journal"
    """The coordinator itself was restarted."""
    CHECKPOINT = "checkpoint"
    """The whole job was started again."""


def main(config: LaunchConfig) -> int:
    """Serves the job until it has ended; the exit code tells how. Raises JournalDamaged."""
    try:
        return _serve(config)
    except Superseded as error:
        LOG.error("ends: the job has a newer coordinator", reason=error)
        return ExitCode.SUPERSEDED


def _serve(config: LaunchConfig) -> int:
    parts, origin = _begun(config)
    transport = open_transport(config.transport_config)
    try:
        address = config.listen_address or config.coordinator_address
        if config.supervisor is Supervisor.NODE:
            signal.signal(signal.SIGTERM, partial(_leave, parts))
        service = begin(parts, origin, transport.listen(address))
        parts.reporting.ready(defaults.coordinator_patience_seconds(config.job.spec))
        service.run()
        # On a full disk the space that it had in reserve is all there is for the summary.
        parts.journal.close()
        parts.reporting.finish(parts.clock())
        parts.reporting.close(parts.clock())
    finally:
        parts.journal.close()
        transport.close()
    return _EXIT_CODES.get(parts.machine.state.phase, ExitCode.INTERRUPTED)


def _leave(parts: Parts, *_: object) -> None:
    parts.leaving = True


def begin(parts: Parts, origin: Origin, listener: Listener) -> Service:
    service = Service(parts, listener)
    LOG.info("coordinator serves", state=str(origin))
    if origin is Origin.JOURNAL:
        committed = parts.checkpoints.committed()
        service.commit(parts.machine.restarted(parts.clock(), committed))
    return service


def _begun(config: LaunchConfig) -> tuple[Parts, Origin]:
    end = time.monotonic() + _LET_IN_SECONDS
    while True:
        try:
            return _parts(config)
        except StoreDenied as error:
            if time.monotonic() >= end:
                if _was_let_in(config):
                    # The job goes on without this process, which is started again and again.
                    raise StoreAway(str(error)) from error
                raise
            LOG.warning("not let in yet", reason=error)
            time.sleep(_ASK_AGAIN_SECONDS)


def _was_let_in(config: LaunchConfig) -> bool:
    """Whether an incarnation before this one has served, as far as this folder knows."""
    return config.resume_from is None and RunFolder(config.run_folder).status.exists()


def _parts(config: LaunchConfig) -> tuple[Parts, Origin]:
    watch = LeaveNoticeWatch(leave_notices.open_notices(config))
    return open_parts(config, partial(_reporting, config), watch, steady_clock)


def open_parts(
    config: LaunchConfig,
    reporting: Callable[[Coordinator], Reporting],
    watch: LeaveNoticeWatch,
    clock: Callable[[float], Callable[[], float]],
) -> tuple[Parts, Origin]:
    """What the loop joins, from what the job has on disk. Claims its journal.

    `clock`: as `steady_clock`. Raises as `first_state` does, and Superseded.
    """
    store = stores.open_store(config.checkpoints)
    kept = journals.open_journal(config.checkpoints)
    # A pod's name, or what is this launcher's alone.
    kept.claim(config.place or config.coordinator_address)
    found, origin = first_state(config, store)
    kept.begin(found)
    if config.resume_from is not None:
        # Before anybody is told anything: a next incarnation that began anew would tell the same
        # incarnations.
        RunFolder(config.run_folder).resumed.touch()
    stages = strategies.stages(config.job.spec, config.checkpoints.uri)
    places = Places(
        model_file=_beside_the_model(config, MODEL),
        best_file=_beside_the_model(config, BEST_MODEL),
        staging=store.staging,
        checkpoint=store.place,
    )
    machine = Coordinator(found, stages, places)
    identity = JobIdentity(uid=config.job_uid, name=config.job.metadata.name)
    parts = Parts(
        machine=machine,
        journal=kept,
        checkpoints=Checkpoints(store, identity, config.job.spec),
        reporting=reporting(machine),
        leave_notices=watch,
        supervisor=config.supervisor,
        clock=clock(found.latest_time),
    )
    return parts, origin


def _beside_the_model(config: LaunchConfig, name: str) -> str:
    uri = config.checkpoints.uri
    if uri and config.supervisor is Supervisor.NODE:
        # The run's folder is that of one pod, and ends with it.
        return f"{uri}/{name}"
    return str(RunFolder(config.run_folder).model.with_name(name))


def _reporting(config: LaunchConfig, machine: Coordinator) -> Reporting:
    served = ServedMetrics(config.metrics_address)
    return Reporting(
        machine,
        RunFiles(config.run_folder),
        served,
        _cluster_status(config),
        losses_are_exact=losses_are_exact(RunFolder(config.run_folder).boots, config.supervisor),
    )


def _cluster_status(config: LaunchConfig) -> ClusterStatus | None:
    access, metadata = config.cluster, config.job.metadata
    if access is None or metadata.namespace is None:
        return None
    job = JobObject(name=metadata.name, namespace=metadata.namespace, uid=config.job_uid)
    server = ApiServer(access, job)
    return ClusterStatus(server.apply, Patches(job, random.Random(config.job_uid)))


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
    if why := resume.impossible(ledger, config.job.spec):
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


def losses_are_exact(noted: Path, supervisor: Supervisor, this_boot: Path = _THIS_BOOT) -> bool:
    """Whether what shards counted of their losses outlived whatever ended them.

    Notes the machine's present boot in the file `noted`: exact is a run that knows no other one.
    Shards count in mapped files, of which the kernel writes the pages some time later: a process
    may die at any moment, the machine may not.

    With a node goes what the shard's file had not on disk yet, or all of an emptyDir, so that on a
    cluster the counts are never exact. Nor are they where the file cannot be read. Raises OSError.
    """
    if supervisor is not Supervisor.LAUNCHER:
        return False
    boot = this_boot.read_text().strip()
    known = _known(noted)
    if known is None:
        return False
    if boot not in known:
        _note(noted, boot)
    return {*known, boot} == {boot}


def _known(noted: Path) -> list[str] | None:
    """None: there is something else than boots."""
    try:
        return noted.read_text().split()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        LOG.warning(
            "the boots that a run knew cannot be read: updates lost are counted at least",
            file=noted,
            error=error,
        )
        return None


def _note(noted: Path, boot: str) -> None:
    noted.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = logs.open_to_append(noted)
    try:
        os.write(descriptor, f"{boot}\n".encode())
        # It is for the time after the machine went down.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def steady_clock(
    not_before: float,
    wall: Callable[[], float] = time.time,
    monotonic: Callable[[], float] = time.monotonic,
) -> Callable[[], float]:
    """Seconds since 1970 that do not jump while this process lives.

    `not_before`: what an earlier incarnation decided at. On a node whose clock is behind, what is
    due after some seconds would else wait for as long as that clock lags.
    """
    ahead = max(wall(), not_before) - monotonic()
    return lambda: monotonic() + ahead
