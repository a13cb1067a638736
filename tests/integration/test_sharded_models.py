"""Models that ranks divide by FSDP2, in processes, against one process that has all of it."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from builders.warm_processes import together
from disttrain.replica.pieces import rows
from disttrain.replica.task_calls import TaskCalls
from oracles import sharded, sharded_learners
from oracles.sharded import CASES, FAILURES, RANKS, Measured


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sharded")
    together(sharded.write_steps, (str(folder),), RANKS)
    return folder


def whole(folder: Path, name: str) -> dict[str, Tensor]:
    """What the ranks have found together; losses and buffers are the first rank's."""
    ranks = [load_file(folder / f"{rank}-{name}.safetensors") for rank in range(RANKS)]
    gradients = [key for key in ranks[0] if key.startswith("gradient")]
    assert all(rank.keys() == ranks[0].keys() for rank in ranks)
    together = {key: torch.cat([rank[key] for rank in ranks]) for key in gradients}
    return ranks[0] | together


@pytest.mark.parametrize("name", CASES)
def test_losses_gradients_and_buffers_are_those_of_one_process(found: Path, name: str) -> None:
    together, alone = whole(found, name), sharded.alone(CASES[name])
    assert together.keys() == alone.keys()
    for key, wanted in alone.items():
        torch.testing.assert_close(together[key], wanted, rtol=1e-10, atol=1e-12, msg=key)


@pytest.mark.parametrize("name", CASES)
def test_each_rank_has_the_gradients_of_its_rows_alone(found: Path, name: str) -> None:
    alone = sharded.alone(CASES[name])
    for rank in range(RANKS):
        own = load_file(found / f"{rank}-{name}.safetensors")
        for key in own:
            if key.startswith("gradient"):
                of_rank = rows(len(alone[key]), rank, RANKS)
                assert own[key].shape == alone[key][of_rank].shape, key
        losses = {key: each for key, each in own.items() if key.startswith("loss")}
        for key, each in losses.items():
            torch.testing.assert_close(each, alone[key], rtol=1e-10, atol=1e-12)


def test_an_evaluation_is_that_of_one_process(found: Path) -> None:
    """Of the model and of a file's, and after one that has failed in all ranks."""
    measured, calls = json.loads((found / "measured.json").read_text()), TaskCalls(Measured())
    for said, seed in {"own": 1, "loaded": 2, "after": 1}.items():
        wanted = asdict(sharded.measured(calls, sharded.trained(seed)))
        assert measured[said]["measures"] == wanted["measures"]
        assert measured[said]["loss"] == pytest.approx(wanted["loss"], rel=1e-6)
    assert "Measured.measure() raised RuntimeError" in measured["said"]["error"]


def test_tensors_come_whole_to_the_first_rank(found: Path) -> None:
    together = load_file(found / "of-loaded.safetensors")
    assert together
    for name, wanted in sharded.trained(2).named_parameters():
        assert together[name].equal(wanted)


def test_a_rank_that_fails_alone_ends_the_group(tmp_path: Path) -> None:
    together(sharded.write_ends, (str(tmp_path),), RANKS)
    for rank in range(RANKS):
        ends = json.loads((tmp_path / f"{rank}.json").read_text())
        assert ends.keys() == set(FAILURES)


def test_two_learners_of_two_ranks_equal_two_of_one_rank(tmp_path: Path) -> None:
    together(sharded_learners.write, (str(tmp_path),), sharded_learners.RANKS)
    for case in sharded_learners.OPTIMIZERS:
        files = [tmp_path / f"{rank}-{case}.safetensors" for rank in range(sharded_learners.RANKS)]
        ranks, alone = [load_file(file) for file in files], sharded_learners.of_one_rank(case)
        assert ranks[0].keys() == ranks[1].keys() == alone.keys()
        for name, wanted in alone.items():
            found = torch.cat([rank[name] for rank in ranks])
            assert float((found - wanted).norm() / wanted.norm()) < 1e-5, (case, name)
