"""A job on this machine, from the prepared run to its outcome: the launcher with its real parts."""

from contextlib import closing

from disttrain.job import names
from disttrain.launch import linux
from disttrain.launch.outcome import Outcome
from disttrain.launcher.fleet import Fleet, UserModule
from disttrain.launcher.launcher import CoordinatorLink, Launcher, Watcher
from disttrain.launcher.run import Run
from disttrain.telemetry import logs

"""Name of its log."""


def run_job(run: Run, watcher: Watcher) -> Outcome:
    """Run a prepared job to its end, in the main thread of a process that does nothing else.

    It adopts and kills every descendant that is left at the end. Closes the run.
    """
    linux.adopt_orphans()
    logs.configure(names.LAUNCHER, run.folder.logs)
    fleet = Fleet(run.folder, UserModule(run.module, run.place.task_folder))
    with closing(run):
        return Launcher(run, fleet, lambda: _open_link(run), watcher).run()


def _open_link(run: Run) -> CoordinatorLink:
    # Imported while torch is being imported by the fork server, instead of before.
    from disttrain.launcher.coordinator_link import ControlLink  # noqa: PLC0415

    return ControlLink(run.configs[names.COORDINATOR], run.place.credentials.get(names.LAUNCHER))
