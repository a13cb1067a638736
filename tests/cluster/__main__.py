"""`python -m cluster up|down|status|add-node|load|kubectl`: a cluster for a person to use."""

import argparse
import os
import sys
import time
from pathlib import Path

from cluster import binaries, leftovers, prerequisites, processes
from cluster.cluster import Cluster
from cluster.errors import ClusterError


def main() -> int:
    """Do what the arguments say; returns the exit code."""
    arguments = _parser().parse_args()
    try:
        return _do(arguments)
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _do(arguments: argparse.Namespace) -> int:
    match arguments.command:
        case "build":
            binaries.build_missing()
        case "up":
            _up()
        case "down":
            Cluster().stop()
        case "status":
            _status()
        case "add-node":
            _say(f"{Cluster.attach().add_node().name} is Ready")
        case "load":
            Cluster.attach().load(arguments.archive)
        case "kubectl":
            command = [str(part) for part in Cluster.attach().kubectl.command(*arguments.rest)]
            os.execv(command[0], command)  # noqa: S606 -- kubectl takes over the terminal
    return 0


def _up() -> None:
    began = time.monotonic()
    cluster = Cluster()
    try:
        cluster.start(_say)
    except ClusterError:
        _say("the cluster did not start; `python -m cluster down` removes what there is of it")
        raise
    cluster.leave_running()
    _say(f"the cluster is up after {time.monotonic() - began:.0f} s")
    _say(f"programs: {binaries.folder()}")
    sys.stdout.write(f"export KUBECONFIG={cluster.kubeconfig}\n")


def _status() -> None:
    reason = prerequisites.reason_against()
    if reason is not None:
        _say(reason)
    for process in processes.all_recorded():
        state = "runs" if process.is_alive() else "ended"
        _say(f"{process.name}: {state}, pid {process.pid}, log {processes.log_of(process.name)}")
    for trace in leftovers.found():
        _say(trace)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the programs, if they are not there")
    commands.add_parser("up", help="start a cluster and leave it running")
    commands.add_parser("down", help="stop the cluster and remove every trace of it")
    commands.add_parser("status", help="what runs, and every trace on this machine")
    commands.add_parser("add-node", help="add a node to the cluster left running")
    load = commands.add_parser("load", help="give all nodes the images of an archive")
    load.add_argument("archive", type=Path)
    kubectl = commands.add_parser("kubectl", help="kubectl against the cluster left running")
    kubectl.add_argument("rest", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
