"""A replica whose partitions share a GPU trains what one process does there."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
]
TASK = Path(__file__).parents[1] / "tasks" / "divided_images.py"
MANIFEST = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: divided}
spec:
  task: {entrypoint: "divided_images:DividedImages"}
  strategy: {downpour: {maxInFlight: 0, optimizer: {sgd: {learningRate: 0.1}}}}
  batchSize: 8
  stop: {epochs: 2}
  evaluation: null
  replicas: {device: cuda}
"""


def trained(folder: Path, partitions: int) -> Tensor:
    """All parameters and buffers of what a job has trained, one after the other."""
    output = folder / str(partitions)
    divided = f"spec.replicas.partitions={partitions}"
    command = [sys.executable, "-m", "disttrain", "run", "job.yaml", "--set", divided]
    subprocess.run([*command, "--output", str(output)], cwd=folder, check=True)
    model = load_file(output / "model.safetensors")
    return torch.cat([model[name].double().flatten() for name in sorted(model)])


@pytest.mark.parametrize("partitions", [2, 4])
def test_the_model_is_that_of_one_process(tmp_path: Path, partitions: int) -> None:
    (tmp_path / TASK.name).write_bytes(TASK.read_bytes())
    (tmp_path / "job.yaml").write_text(MANIFEST)
    one, several = trained(tmp_path, 1), trained(tmp_path, partitions)
    assert (several - one).norm() <= 1e-3 * one.norm()
