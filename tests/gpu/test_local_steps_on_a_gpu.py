"""Local steps of a replica whose model, optimizer and anchor are on a GPU."""

import copy

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from builders import placements
from builders.local_training import LocalTraining, adamw, batches, local_steps, plain_steps
from builders.networks import a_network
from builders.parameter_servers import OneShard

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
]


@pytest.mark.parametrize("fragments", [1, 4])
@pytest.mark.parametrize("adopt", ["replace", "add"])
def test_one_replica_is_the_plain_loop_on_the_gpu(adopt: str, fragments: int) -> None:
    model, server = a_network().to("cuda"), OneShard(1.0)
    plain = copy.deepcopy(model)
    manifest = local_steps(steps=8, fragments=fragments, adopt=adopt, optimizer=adamw())
    one = LocalTraining(model, server, manifest, device="cuda")
    given = batches(1)
    for _ in range(50):
        one.step(next(given))
    one.stepper.flush()
    one.close()

    moved = ((values.to("cuda"), labels.to("cuda")) for values, labels in batches(1))
    plain_steps(plain, torch.optim.AdamW(plain.parameters(), lr=0.01), moved, 50)
    found = server.values[placements.PARAMETERS]
    wanted = parameters_to_vector(plain.parameters()).detach().cpu()
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5
