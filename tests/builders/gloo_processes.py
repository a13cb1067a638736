"""Processes that compute together over gloo, as the partitions of a replica do."""

import json
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import distributed, multiprocessing

from disttrain.groups import gloo
from disttrain.parallel import Communicator

Job = TypeVar("Job")
_CONNECT = timedelta(seconds=120)


def results(size: int, work: Callable[[Job, Communicator], Any], job: Job) -> list[Any]:
    """What `work` gives in each of so many processes, by rank; as JSON carries it.

    Each has one thread. `work` is a function of a module, which the processes import.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = (size, work, job, folder)
        multiprocessing.spawn(_one, given, nprocs=size)  # type: ignore[no-untyped-call, attr-defined]
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(size)]


def connected(rank: int, size: int, folder: str) -> Communicator:
    """One process's way to the others, who meet in the folder."""
    store = distributed.FileStore(f"{folder}/store", size)  # type: ignore[attr-defined]
    store.set_timeout(_CONNECT)
    return gloo.communicator(store, rank, size, "127.0.0.1")


def leave(peers: Communicator) -> NoReturn:
    """End this process, once nobody talks to it."""
    peers.sum(torch.zeros(1))
    # A process group is never destroyed, and an interpreter that ends would end its threads so that
    # the process aborts.
    os._exit(0)


def _one(
    rank: int, size: int, work: Callable[[Job, Communicator], Any], job: Job, folder: str
) -> None:
    torch.set_num_threads(1)
    peers = connected(rank, size, folder)
    Path(folder, f"{rank}.json").write_text(json.dumps(work(job, peers)))
    leave(peers)
