"""A job on this machine, from the prepared run to its outcome: the launcher with its real parts."""

from collections.abc import Callable
from contextlib import closing

from disttrain.job import names
from disttrain.launch import linux
from disttrain.launch.outcome import Outcome
from disttrain.launcher.fleet import Fleet, UserModule
from disttrain.launcher.launcher import CoordinatorLink, Launcher, Watcher
from disttrain.launcher.run import Run
from disttrain.telemetry import logs


def run_job(run: Run, watcher: Watcher, open_link: Callable[[Run], CoordinatorLink]) -> Outcome:
    """Run a prepared job to its end, in the main thread of a process that does nothing else.

    It adopts and kills every descendant that is left at the end. Closes the run.
    """
    linux.adopt_orphans()
    logs.configure(names.LAUNCHER, run.folder.logs)
    fleet = Fleet(run.folder, UserModule(run.module, run.place.task_folder))
    with closing(run):
        return Launcher(run, fleet, lambda: open_link(run), watcher).run()
