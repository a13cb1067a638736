"""A model over real processes trains as in one."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from builders import partition_processes
from builders.divided import far
from builders.warm_processes import together


@pytest.mark.timeout(300)
@pytest.mark.parametrize("grid", [(1, 2), (2, 2)])
def test_processes_train_what_one_does(grid: tuple[int, int], tmp_path: Path) -> None:
    size = grid[0] * grid[1]
    plain = partition_processes.a_model()
    partition_processes.train(plain)

    together(partition_processes.one, (grid, str(tmp_path)), size)

    parts = [safetensors.torch.load_file(tmp_path / f"{rank}.safetensors") for rank in range(size)]
    for name, wanted in plain.named_parameters():
        found = torch.stack([part[name] for part in parts]).sum(0)
        assert far(found, wanted) < 1e-10
