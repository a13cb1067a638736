"""The incarnation of one role process, from its launch config to its exit code.

`python -m disttrain.launch.process CONFIG PARENT` runs a role by exec; the fork server calls `run`.
"""

import atexit
import faulthandler
import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from disttrain.errors import DistTrainError, FinalError
from disttrain.job.names import Role
from disttrain.launch import config as launch_config
from disttrain.launch import linux, outcome
from disttrain.launch.config import LaunchConfig
from disttrain.launch.exit_code import ExitCode
from disttrain.launch.run_folder import RunFolder
from disttrain.telemetry import logs

LOG = logs.get(__name__)

RoleMain = Callable[[LaunchConfig], int]

SERVERS = {
    Role.COORDINATOR: "disttrain.coordinator.process.server",
    Role.SHARD: "disttrain.parameter_server.server",
    Role.REPLICA: "disttrain.replica.server",
}
"""The module whose `main` is the role. Not imported here: the coordinator starts without torch."""

SERVERS_VARIABLE = "DISTTRAIN_SERVERS"
"""Environment: ROLE=MODULE,... puts other modules in the place of SERVERS. For tests."""


def server_module(role: Role) -> str:
    given = os.environ.get(SERVERS_VARIABLE, "")
    others = dict(pair.split("=", 1) for pair in given.split(",") if pair)
    return others.get(role.value, SERVERS[role])


def run(config_file: Path) -> int:
    """Run the role until it ends; returns the exit code of the process.

    A FinalError of the role becomes the process's failure file and FINAL_ERROR, so that nobody
    starts it again; every other exception is logged and becomes CRASHED.
    """
    config = launch_config.read(config_file)
    folder = RunFolder(config.run_folder)
    logs.configure(config.process, folder.logs)
    return live(config, lambda error: outcome.write_failure(folder.failure(config.process), error))


def live(config: LaunchConfig, when_final: Callable[[FinalError], None]) -> int:
    """Run the role until it ends, with logs configured; returns what `run` does.

    A FinalError goes to `when_final`.
    """
    linux.set_process_name(f"dt:{config.process}")
    faulthandler.enable()
    try:
        main: RoleMain = importlib.import_module(server_module(config.role)).main
        return main(config)
    except FinalError as error:
        LOG.error("ends: a restart would not help", kind=type(error).__name__, error=error)
        when_final(error)
        return ExitCode.FINAL_ERROR
    except DistTrainError as error:
        LOG.exception("ends", kind=type(error).__name__)
        return ExitCode.CRASHED
    except Exception:
        LOG.exception("ends: an error that nobody expected")
        return ExitCode.CRASHED


def end(code: int) -> NoReturn:
    """End this process as a program ends, but for what it imported.

    The interpreter's own end tears down torch and takes long, and is a place to crash in.
    """
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    config_file, parent = sys.argv[1:]
    linux.end_with_parent(int(parent), signal.SIGKILL)
    # The launcher decides what Ctrl-C means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(run(Path(config_file)))


if __name__ == "__main__":
    main()
