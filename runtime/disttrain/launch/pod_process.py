"""Runs one role process by its environment alone.

Whoever watches it only sees its exit code and its termination message:

- The coordinator ends with 0 when it has decided the end of the job, good or bad, and with 143 by
  SIGTERM, after which it goes on later. The message says which.
- Shards and replicas that are done, or that no restart helps, stay until SIGTERM and end with 0:
  whoever keeps them would start them again. Any other exit code asks for that.
"""

import importlib
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from disttrain.errors import FinalError
from disttrain.job import cluster_names, credentials, manifest_file
from disttrain.job.credentials import Credentials, Trust
from disttrain.job.finding import InvalidManifest
from disttrain.job.identity import is_instance
from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.launch import (
    atomic_file,
    linux,
    pod_config,
    pod_credentials,
    process,
    process_one,
    termination_log,
)
from disttrain.launch.config import LaunchConfig
from disttrain.launch.errors import InvalidLaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.outcome import RESULTS
from disttrain.launch.pod_config import PodEnvironment
from disttrain.launch.pod_credentials import Applicant
from disttrain.launch.process_one import Terminations
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import exporter, logs
from disttrain.telemetry.exporter import Health

LOG = logs.get(__name__)

_START_SECONDS = 600.0
"""From the certificate to the metrics of a process that had to wait: as long as its start may take
where it had not."""

REPORTER = "disttrain.coordinator.protocol.client"
"""The module that tells the coordinator of an error. Not imported here, as the roles are not."""


def run(terminations: Terminations) -> NoReturn:
    """Live as the role that the environment names, to the end of this process."""
    try:
        environment = pod_config.read(os.environ)
        config, trust = _config(environment)
    except (InvalidLaunchConfig, InvalidManifest) as error:
        sys.stderr.write(f"{error}\n")
        process.end(ExitCode.USAGE)
    process_one.reap_orphans()
    logs.configure(config.process, None)
    if trust is not None:
        config = _identified(config, _applicant(environment, config, trust))
    if config.role is Role.COORDINATOR:
        process.end(_coordinate(config, environment.termination_log))
    process.end(_take_part(config, environment.termination_log, terminations))


def _config(environment: PodEnvironment) -> tuple[LaunchConfig, Trust | None]:
    """What the process is told, and of whom it gets its certificate if it has none there."""
    job = manifest_file.load_job(environment.launch_file)
    found = None
    if job.spec.transport.is_encrypted:
        found = _credentials(environment.credentials_file)
    trust = found if isinstance(found, Trust) else None
    issued = None if isinstance(found, Trust) else found
    config = pod_config.make(environment, job, issued, linux.usable_cores())
    if trust is not None and not is_instance(environment.pod_uid):
        message = f"{Variable.POD_UID} must be the pod's uid, got {environment.pod_uid!r}"
        raise InvalidLaunchConfig(message)
    return config, trust


def _applicant(environment: PodEnvironment, config: LaunchConfig, trust: Trust) -> Applicant:
    return Applicant(
        trust=trust,
        job=config.job.metadata.name,
        # The container may be started again in the same pod.
        instance=f"{environment.pod_uid}.{os.urandom(4).hex()}",
        token=environment.token_file,
        secret=cluster_names.launch_secret(config.job.metadata.name, config.job_uid),
    )


def _identified(config: LaunchConfig, applicant: Applicant) -> LaunchConfig:
    """The config of a process that has a certificate of its own; waits until it is signed.

    Who waits says that it lives: a kubelet would end it after minutes, and each time counts as a
    restart, while the operator may be away for hours.
    """
    waiting: list[Health] = []

    def pause(seconds: float) -> None:
        if not waiting:
            waiting.append(exporter.answer_early(config.metrics_address))
        time.sleep(seconds)

    first = applicant.ask_until_signed(pause)
    for health in waiting:
        health.begin(_START_SECONDS)
    kept = pod_credentials.keep_renewed(first, applicant)
    return replace(config, renewed=kept, instance=applicant.instance)


def _credentials(file: Path | None) -> Credentials | Trust:
    if file is None:
        message = (
            f"{Variable.CREDENTIALS_FILE} is missing: with spec.transport.encryption tls it names "
            "the file that says of whom the process gets its certificate"
        )
        raise InvalidLaunchConfig(message)
    try:
        return credentials.parse(file.read_bytes())
    except OSError as error:
        message = f"{Variable.CREDENTIALS_FILE}: {file} cannot be read: {error.strerror}"
        raise InvalidLaunchConfig(message) from error
    except ValueError as error:
        message = f"{Variable.CREDENTIALS_FILE}: {file}: {error}"
        raise InvalidLaunchConfig(message) from error


def _coordinate(config: LaunchConfig, log: Path) -> int:
    def told(error: FinalError) -> None:
        message = str(error) or type(error).__name__
        termination_log.write(log, termination_log.failed(type(error).__name__, message))

    folder = RunFolder(config.run_folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    # What the run was told, for whoever looks at its folder later.
    manifest = config.job.model_dump(mode="json", by_alias=True)
    atomic_file.replace(folder.job, json.dumps(manifest, indent=2).encode() + b"\n")
    code = process.live(config, told)
    if code in RESULTS:
        summary = termination_log.read_summary(folder)
        termination_log.write(log, termination_log.outcome(ExitCode(code), summary))
    # An end that was decided is no failure of this process; nobody is to start it again.
    decided = {
        ExitCode.FAILED: 0,
        ExitCode.FINAL_ERROR: 0,
        ExitCode.INTERRUPTED: process_one.STOPPED,
    }
    return decided.get(ExitCode(code), code)


def _take_part(config: LaunchConfig, log: Path, terminations: Terminations) -> int:
    def told(error: FinalError) -> None:
        termination_log.write(log, termination_log.text(str(error) or type(error).__name__))
        # The role has ended, and with it whatever it would do at SIGTERM.
        process_one.end_on_sigterm(ExitCode.COMPLETE)
        importlib.import_module(REPORTER).report_failure(config, error)

    RunFolder(config.run_folder).ledger.mkdir(parents=True, exist_ok=True)
    code = process.live(config, told)
    if code in {ExitCode.COMPLETE, ExitCode.FINAL_ERROR}:
        LOG.info("stays until it is told to end: there is nothing left to do")
        terminations.wait()
        return ExitCode.COMPLETE
    if code != ExitCode.INTERRUPTED:
        return code
    # Where another process of its replica was told to end, this one follows and comes again.
    return ExitCode.COMPLETE if terminations.has_come() else ExitCode.RESTART
