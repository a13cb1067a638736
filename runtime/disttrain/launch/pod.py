"""The entry point of a pod: `python -m disttrain.launch.pod`; the same outside of Kubernetes.

It heeds SIGTERM before it imports what takes long. The first process of a container gets no signal
that it does not handle: told to end meanwhile, it would stay until it is killed, two minutes later,
and keep its pod's name from the next one.
"""

import importlib
import os
import signal

from disttrain.job.names import Role
from disttrain.job.pod_layout import Variable
from disttrain.launch import process_one
from disttrain.launch.exit_code import ExitCode

PROCESS = "disttrain.launch.pod_process"
"""The module that runs the role, and imports what takes long."""


def main() -> None:
    # Ctrl-C outside of a container ends it; as an exception it would look like one of the task's.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    terminations = process_one.Terminations()
    is_coordinator = os.environ.get(Variable.ROLE) == Role.COORDINATOR
    process_one.end_on_sigterm(process_one.STOPPED if is_coordinator else ExitCode.COMPLETE)
    importlib.import_module(PROCESS).run(terminations)


if __name__ == "__main__":
    main()
