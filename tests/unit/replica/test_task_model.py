"""What a process of a replica makes without data, and how it hears how the model is divided."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from builders.jobs import a_job
from builders.ranks import thread_groups
from disttrain.job import names
from disttrain.job.roles import Device
from disttrain.launch.config import LaunchConfig
from disttrain.replica import division, prepared, strategies, task_model
from disttrain.transport.config import TransportKind

TASK = """\
import torch
from torch import nn
from torch.utils.data import TensorDataset

import disttrain


class Noting(disttrain.Task):
    asked = []

    def model(self):
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 5 * 4, 6))

    def dataset(self, split):
        self.asked.append(split)
        return TensorDataset(torch.ones(64, 2, 7, 6))

    def loss(self, model, batch):
        return model(batch[0]).square().mean()
"""
SAMPLE = (2, 7, 6)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[LaunchConfig]:
    """What the first process of a replica is told."""
    before = list(sys.path)
    (tmp_path / "noting.py").write_text(TASK)
    yield LaunchConfig(
        job=a_job("spec.task.entrypoint=noting:Noting", "spec.replicas.partitions=2"),
        job_uid="1",
        role=names.Role.REPLICA,
        index=0,
        run_folder=tmp_path,
        task_folder=tmp_path,
        coordinator_address="ipc://nowhere",
        transport=TransportKind.TCP,
        threads=1,
        device=Device.CPU,
    )
    sys.path[:] = before
    sys.modules.pop("noting", None)


def asked() -> list[str]:
    found: list[str] = sys.modules["noting"].Noting.asked
    return found


def test_a_partition_divides_the_model_as_the_first_one_does_and_asks_for_no_data(
    first: LaunchConfig,
) -> None:
    made = task_model.make(replace(first, partition=1), strategies.check_task)
    layout = made.tensors_in(made.in_partitions(SAMPLE)).layout
    assert asked() == []

    ready = prepared.prepare(first, strategies.check_task)
    assert sorted(asked()) == ["test", "train"]
    assert isinstance(ready.division, division.Division)
    assert ready.division.sample == SAMPLE
    assert ready.tensors.layout == layout
    assert layout.partitions == 2


@pytest.mark.parametrize("sample", [SAMPLE, (12,), ()])
def test_the_first_process_tells_all_others_what_a_sample_is(sample: tuple[int, ...]) -> None:
    groups = thread_groups(3)
    with ThreadPoolExecutor(len(groups)) as pool:
        told = [pool.submit(division.told_sample, group) for group in groups[1:]]
        division.tell_sample(groups[0], sample)
        assert [each.result() for each in told] == 2 * [sample]
