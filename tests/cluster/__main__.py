"""`python -m cluster up|down|status|kubectl|...`: a cluster for a person to use."""

import argparse
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cluster import binaries, debian, hooks, leftovers, prerequisites, processes
from cluster.cluster import Cluster
from cluster.errors import ClusterError
from cluster.hooks import Hooks


def main() -> int:
    """Do what the arguments say; returns the exit code."""
    arguments = _parser().parse_args()
    action: Callable[[argparse.Namespace], None] = arguments.action
    try:
        action(arguments)
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def build(_: argparse.Namespace) -> None:
    """Build the programs, if they are not there; prints their folder."""
    binaries.build_missing(_say)
    sys.stdout.write(f"{binaries.folder()}\n")


def prepare(_: argparse.Namespace) -> None:
    """Install and build what is missing, where a cluster can run; say why not elsewhere."""
    reason = prerequisites.reason_against()
    if reason is not None:
        _say(f"no end-to-end tests: {reason}")
        return
    debian.install_missing()
    binaries.build_missing(_say)


def up(_: argparse.Namespace) -> None:
    """Start a cluster and leave it running; prints how to reach it."""
    began = time.monotonic()
    cluster = Cluster()
    cluster.start(_say)
    cluster.leave_running()
    _say(f"the cluster is up after {time.monotonic() - began:.0f} s")
    sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig}\n")
    for variable, command in Hooks(hooks.OURS).variables().items():
        sys.stdout.write(f"export {variable}={shlex.quote(command)}\n")


def down(_: argparse.Namespace) -> None:
    """Stop the cluster and remove every trace of it."""
    Cluster().stop()


def status(_: argparse.Namespace) -> None:
    """Say what runs, and every trace on this machine."""
    reason = prerequisites.reason_against()
    if reason is not None:
        _say(reason)
    for process in processes.all_recorded():
        state = "runs" if process.is_alive() else "ended"
        _say(f"{process.name}: {state}, pid {process.pid}, log {processes.log_of(process.name)}")
    for trace in leftovers.found():
        _say(trace)


def add_node(_: argparse.Namespace) -> None:
    """Add a node with the images of the first to the cluster that was left running."""
    cluster = Cluster.attach()
    node = cluster.add_node()
    cluster.copy_images(node)
    _say(f"{node.name} is Ready")


def load(arguments: argparse.Namespace) -> None:
    """Give all nodes the image of a name in a Docker archive."""
    Cluster.running().load(arguments.archive, arguments.name)


def kill(arguments: argparse.Namespace) -> None:
    """Kill the first process of a container, as no one expects."""
    Cluster.running().kill_container(arguments.namespace, arguments.pod, arguments.container)


def kubectl(arguments: argparse.Namespace) -> None:
    """Become kubectl, for the cluster that was left running."""
    command = [str(part) for part in Cluster.attach().kubectl.command(*arguments.rest)]
    os.execv(command[0], command)  # noqa: S606 -- kubectl takes over the terminal


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for action in (build, prepare, up, down, status, add_node, load, kill, kubectl):
        name = action.__name__.replace("_", "-")
        command = commands.add_parser(name, help=action.__doc__)
        command.set_defaults(action=action)
        if action is load:
            command.add_argument("archive", type=Path)
            command.add_argument("name")
        if action is kill:
            for what in ("namespace", "pod", "container"):
                command.add_argument(what)
        if action is kubectl:
            command.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
