"""What a member of a job leaves behind in its process."""

import gc
from contextlib import suppress
from pathlib import Path

import torch
from torch import nn

from builders.jobs import SMALL
from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.messages import Joined
from disttrain.job import names
from disttrain.job.parsing import parse_job
from disttrain.launch.config import LaunchConfig
from disttrain.launch.run_folder import RunFolder
from disttrain.replica import model_tensors
from disttrain.replica.membership import Membership, Trained
from disttrain.state.placement import place
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Role


def segments() -> int:
    """Descriptors of shared memory that this process has."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found += "memfd" in str(descriptor.readlink())
    return found


def test_an_incarnation_that_has_left_keeps_no_connection_and_no_shared_memory(
    tmp_path: Path,
) -> None:
    before = segments()
    folder = RunFolder(tmp_path)
    folder.ledger.mkdir()
    config = LaunchConfig(
        job=parse_job(SMALL),
        job_uid="job",
        role=names.Role.REPLICA,
        index=0,
        run_folder=tmp_path,
        task_folder=tmp_path,
        coordinator_address=f"ipc://{tmp_path}/coordinator",
        transport=TransportKind.SHARED_MEMORY,
        threads=1,
    )
    membership = Membership(config)
    model = nn.Linear(8, 8)
    joined = Joined(
        member=MemberId(role=Role.REPLICA, index=0, incarnation=1),
        seed=1,
        placement=place(model_tensors.describe(model).layout, 1),
    )
    trained = Trained(model, torch.device("cpu"))
    connection = membership.connect(joined, trained, outgoing_buffers=2)
    assert segments() > before
    assert membership.connect(joined, trained, 0) is connection

    membership.close()

    assert connection.cancellation.is_cancelled
    assert model.weight.sum().isfinite()
    del connection, model, trained
    gc.collect()
    assert segments() == before
