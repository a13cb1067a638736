"""The coordinator's process: what `disttrain run` and a pod start."""

import random
import signal
import time
from collections.abc import Callable
from functools import partial

from disttrain.checkpoint import names, stores
from disttrain.checkpoint.errors import StoreAway, StoreDenied
from disttrain.checkpoint.manifest import JobIdentity
from disttrain.coordinator import strategies
from disttrain.coordinator.decisions.machine import Coordinator
from disttrain.coordinator.decisions.turn import Places
from disttrain.coordinator.errors import Superseded
from disttrain.coordinator.journal import journals
from disttrain.coordinator.journal.state import Phase
from disttrain.coordinator.process import boots, start
from disttrain.coordinator.process.checkpoints import Checkpoints
from disttrain.coordinator.process.cluster_status import ApiServer, ClusterStatus
from disttrain.coordinator.process.farewell_watch import FarewellWatch
from disttrain.coordinator.process.leaving import Leaving
from disttrain.coordinator.process.reporting import Reporting
from disttrain.coordinator.process.run_files import RunFiles
from disttrain.coordinator.process.served_metrics import ServedMetrics
from disttrain.coordinator.process.service import Parts, Service, steady_clock
from disttrain.coordinator.process.start import Origin
from disttrain.coordinator.protocol import farewells
from disttrain.coordinator.status.cluster_status import JobObject, Patches
from disttrain.job import defaults
from disttrain.launch.config import LaunchConfig, Supervisor
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import logs
from disttrain.transport.factory import open_transport
from disttrain.transport.interface import Listener

LOG = logs.get(__name__)

_LET_IN_SECONDS = 10.0
"""An object store's credentials may come a moment after the pod; then the first life gives up."""
_ASK_AGAIN_SECONDS = 1.0

_EXIT_CODES = {
    Phase.COMPLETE: ExitCode.COMPLETE,
    Phase.STOPPED: ExitCode.INTERRUPTED,
    Phase.FAILED: ExitCode.FAILED,
}
"""A full disk may take no summary: then this is all that the launcher hears. Of a job that goes on
later, INTERRUPTED."""


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
            signal.signal(signal.SIGTERM, lambda *_: parts.leaving.ask())
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


def begin(parts: Parts, origin: Origin, listener: Listener) -> Service:
    """The loop, ready to run."""
    service = Service(parts, listener)
    LOG.info("coordinator serves", state=str(origin))
    if origin is Origin.JOURNAL:
        committed = parts.checkpoints.committed()
        service.settle(parts.machine.restarted(parts.clock(), committed))
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
    """Whether a life before this one has served, as far as this folder knows."""
    return config.resume_from is None and RunFolder(config.run_folder).status.exists()


def _parts(config: LaunchConfig) -> tuple[Parts, Origin]:
    watch = FarewellWatch(farewells.open_farewells(config))
    return open_parts(config, partial(_reporting, config), watch, steady_clock)


def open_parts(
    config: LaunchConfig,
    reporting: Callable[[Coordinator], Reporting],
    watch: FarewellWatch,
    clock: Callable[[float], Callable[[], float]],
) -> tuple[Parts, Origin]:
    """What the loop joins, from what the job has on disk. Claims its journal.

    `clock`: as `steady_clock`. Raises as `start.first_state` does, and Superseded.
    """
    store = stores.open_store(config.checkpoints)
    kept = journals.open_journal(config.checkpoints)
    # A pod's name, or what is this launcher's alone.
    kept.claim(config.place or config.coordinator_address)
    found, origin = start.first_state(config, store)
    kept.begin(found)
    if config.resume_from is not None:
        # Before anybody is told anything: a next life that began anew would tell the same lives.
        RunFolder(config.run_folder).resumed.touch()
    stages = strategies.stages(config.job.spec, config.checkpoints.uri)
    places = Places(model_file=_model_file(config), staging=store.staging, checkpoint=store.place)
    machine = Coordinator(found, stages, places)
    identity = JobIdentity(uid=config.job_uid, name=config.job.metadata.name)
    parts = Parts(
        machine=machine,
        journal=kept,
        checkpoints=Checkpoints(store, identity, config.job.spec),
        reporting=reporting(machine),
        leaving=Leaving(machine, kept),
        farewells=watch,
        supervisor=config.supervisor,
        clock=clock(found.latest_time),
    )
    return parts, origin


def _model_file(config: LaunchConfig) -> str:
    uri = config.checkpoints.uri
    if uri and config.supervisor is Supervisor.NODE:
        # The run's folder is that of one pod, and ends with it.
        return f"{uri}/{names.MODEL}"
    return str(RunFolder(config.run_folder).model)


def _reporting(config: LaunchConfig, machine: Coordinator) -> Reporting:
    served = ServedMetrics(config.metrics_address)
    return Reporting(
        machine,
        RunFiles(config.run_folder),
        served,
        _cluster_status(config),
        losses_are_exact=boots.losses_are_exact(
            RunFolder(config.run_folder).boots, config.supervisor
        ),
    )


def _cluster_status(config: LaunchConfig) -> ClusterStatus | None:
    access, metadata = config.cluster, config.job.metadata
    if access is None or metadata.namespace is None:
        return None
    job = JobObject(name=metadata.name, namespace=metadata.namespace, uid=config.job_uid)
    server = ApiServer(access, job)
    return ClusterStatus(server.apply, Patches(job, random.Random(config.job_uid)))
