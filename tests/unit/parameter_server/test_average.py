"""The moving average beside the parameters: PyTorch's, each update once, whatever comes between."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from builders import checkpoints, downpour_shards, placements
from builders.placements import PARAMETERS
from builders.transports import a_header
from disttrain.checkpoint.reading import Checkpoint
from disttrain.holder import writing
from disttrain.holder.restoring import Wanted
from disttrain.holder.values import bytes_of
from disttrain.job.average import AVERAGE
from disttrain.job.length import Extent, Length
from disttrain.job.update_rule import UpdateRule
from disttrain.job.update_rules.adamw import AdamW
from disttrain.job.update_rules.momentum import Momentum
from disttrain.job.update_rules.rmsprop import RmsProp
from disttrain.job.update_rules.sgd import Sgd
from disttrain.parameter_server import restoring
from disttrain.parameter_server.deliveries import SenderIncarnation
from disttrain.parameter_server.holder_side import ShardState
from disttrain.parameter_server.presence import MARK
from disttrain.parameter_server.shard import Shard
from disttrain.parameter_server.strategies.downpour import Kept, PushedGradients
from disttrain.state.placement import TRAINED, Placement
from disttrain.state.share import Share
from disttrain.state.vector import Vector
from disttrain.transport.header import ElementType, Header, Reason, Verb

LENGTH, CHUNK = 320, 32
SAMPLES, HALF_LIFE = 8, 100
DECAY = 0.5 ** (SAMPLES / HALF_LIFE)
KEPT = PARAMETERS.beside(AVERAGE)


def drawn(seed: int) -> Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed))


def a_placement(rule: UpdateRule, shards: int = 1) -> Placement:
    kept = (*rule.initial_state, AVERAGE)
    return placements.a_placement({PARAMETERS: LENGTH}, shards, kept)


def a_shard(
    rule: UpdateRule, shards: int = 1, index: int = 0, half_life: Length | None = None
) -> Shard:
    """Without values."""
    shard = downpour_shards.build(
        ShardState(index=index, incarnation=1),
        rule,
        extent=lambda _: Extent(samples=10 * HALF_LIFE, epoch=2 * HALF_LIFE),
        average=half_life or Length(samples=HALF_LIFE),
    )
    shard.configure(a_placement(rule, shards), 4 * CHUNK)
    shard.admit(SenderIncarnation(0, 1))
    return shard


def vector(shard: Shard, name: Vector = KEPT) -> Tensor:
    assert shard.state.values is not None
    return shard.state.values.tensor(name)


def say(shard: Shard, verb: Verb, values: Tensor, number: int, sequence: int) -> Header:
    share = shard.stage.values.share
    part = share.chunk(PARAMETERS, number)
    header = a_header(
        verb,
        incarnation=1,
        receiver_incarnation=1,
        version_incarnation=1,
        sequence=sequence,
        vector=TRAINED,
        element_type=ElementType.FLOAT32,
        chunk=number,
        chunks=share.num_chunks(PARAMETERS),
        first=part.first,
        count=part.count,
        samples=SAMPLES,
    )
    cut = values[part.first : part.first + part.count].contiguous()
    answers = list(shard.handle(header, bytes_of(cut)))
    return answers[-1].header if answers else header


def upload(shard: Shard, values: Tensor) -> None:
    for number in range(shard.stage.values.share.num_chunks(PARAMETERS)):
        say(shard, Verb.UPLOAD, values, number, 1)


def push(shard: Shard, sequence: int, gradient: Tensor | None = None, copies: int = 1) -> None:
    gradient = drawn(100 + sequence) if gradient is None else gradient
    for number in range(shard.stage.values.share.num_chunks(PARAMETERS)):
        for _ in range(copies):
            say(shard, Verb.PUSH, gradient, number, sequence)


def in_pytorch(pushes: int) -> Tensor:
    model = nn.Linear(LENGTH, 1, bias=False)
    model.weight.data.copy_(drawn(0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    moving = get_ema_multi_avg_fn(DECAY)  # type: ignore[no-untyped-call]
    averaged = AveragedModel(model, multi_avg_fn=moving)
    averaged.update_parameters(model)
    for sequence in range(1, pushes + 1):
        model.weight.grad = drawn(100 + sequence)[None]
        optimizer.step()
        averaged.update_parameters(model)
    return next(averaged.module.parameters()).detach().flatten()


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("copies", [1, 2])
def test_it_is_pytorchs_and_a_chunk_that_comes_again_moves_it_once(
    shards: int, copies: int
) -> None:
    rule = AdamW(learning_rate=0.01, weight_decay=0.1)
    found = []
    for index in range(shards):
        shard = a_shard(rule, shards, index)
        upload(shard, drawn(0))
        for sequence in range(1, 201):
            push(shard, sequence, copies=copies)
        found.append(vector(shard))
    wanted = in_pytorch(200)
    assert (torch.cat(found) - wanted).norm() / wanted.norm() < 1e-6


@pytest.mark.parametrize(
    "half_life", [Length(samples=HALF_LIFE), Length(epochs=0.5), Length(fraction=0.1)]
)
def test_its_half_life_is_what_the_manifest_says(half_life: Length) -> None:
    shard = a_shard(Sgd(learning_rate=0.1), half_life=half_life)
    upload(shard, drawn(0))
    push(shard, 1)
    assert torch.equal(vector(shard), drawn(0).lerp(vector(shard, PARAMETERS), 1 - DECAY))


def test_it_begins_with_the_parameters_that_were_uploaded() -> None:
    shard = a_shard(Sgd(learning_rate=0.1))
    upload(shard, drawn(0))
    assert torch.equal(vector(shard), drawn(0))


def test_elements_without_a_gradient_are_averaged_too() -> None:
    shard = a_shard(Momentum(learning_rate=1.0))
    upload(shard, torch.zeros(LENGTH))
    push(shard, 1, torch.ones(LENGTH))
    gone = torch.full((LENGTH,), MARK)
    push(shard, 2, gone)
    first, second = 1 - DECAY, (1 - DECAY) * DECAY
    assert torch.allclose(vector(shard), torch.full((LENGTH,), -(first + second)))


def test_what_was_applied_of_a_push_that_is_refused_has_moved_it() -> None:
    shard = a_shard(Sgd(learning_rate=1.0))
    upload(shard, torch.zeros(LENGTH))
    say(shard, Verb.PUSH, torch.ones(LENGTH), 0, 1)
    refused = say(shard, Verb.PUSH, torch.full((LENGTH,), math.nan), 1, 1)
    assert refused.reason == Reason.NOT_FINITE
    assert vector(shard)[:CHUNK].tolist() == pytest.approx([-(1 - DECAY)] * CHUNK)
    assert not vector(shard)[CHUNK:].any()


def saved(folder: Path, shards: list[Shard], rule: UpdateRule) -> Checkpoint:
    cuts = [writing.cut(1, shard.stage.values, shard.state.notes()) for shard in shards]
    return checkpoints.commit_cuts(folder, cuts, rule.name)


def restored(checkpoint: Checkpoint, rule: UpdateRule, shards: int, index: int) -> Shard:
    room = PushedGradients.room
    wanted = Wanted(
        share=Share(a_placement(rule, shards), index, 4 * CHUNK),
        makers={rule.name: lambda share, said: room(Kept(rule, averages=True), share, said)},
        tables=restoring.TABLES,
    )
    found = restoring.restore([checkpoint], wanted)
    assert found is not None
    shard = a_shard(rule, shards, index)
    shard.restore(found)
    return shard


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (3, 2)])
def test_it_goes_on_from_a_checkpoint_with_any_number_of_shards(
    tmp_path: Path, before: int, after: int
) -> None:
    rule = AdamW(learning_rate=0.01, weight_decay=0.1)
    old = [a_shard(rule, before, index) for index in range(before)]
    for shard in old:
        upload(shard, drawn(0))
        for sequence in range(1, 101):
            push(shard, sequence)
    checkpoint = saved(tmp_path, old, rule)

    new = [restored(checkpoint, rule, after, index) for index in range(after)]
    for shard in new:
        for sequence in range(101, 201):
            push(shard, sequence)

    wanted = in_pytorch(200)
    found = torch.cat([vector(shard) for shard in new])
    assert (found - wanted).norm() / wanted.norm() < 1e-6


def test_from_a_checkpoint_of_before_it_begins_with_the_parameters(tmp_path: Path) -> None:
    rule = RmsProp(learning_rate=0.1)
    state = ShardState(index=0, incarnation=1, is_initialised=True)
    plain = downpour_shards.build(state, rule)
    plain.configure(placements.a_placement({PARAMETERS: LENGTH}, 1, rule.kept), 4 * CHUNK)
    vector(plain, PARAMETERS).copy_(drawn(7))
    vector(plain, PARAMETERS.beside("mean_of_squares")).fill_(3.0)

    centered = RmsProp(learning_rate=0.1, centered=True)
    shard = restored(saved(tmp_path, [plain], rule), centered, 1, 0)

    assert torch.equal(vector(shard), drawn(7))
    assert torch.equal(vector(shard, PARAMETERS), drawn(7))
    # What only a field asks for begins as in a new run; what every such run has is there.
    assert not vector(shard, PARAMETERS.beside("mean")).any()
    assert (vector(shard, PARAMETERS.beside("mean_of_squares")) == 3.0).all()
