import pytest
import torch
from torch import Tensor, nn

from builders import placements
from builders.networks import Unusual, a_network, a_normalised_network
from builders.replicas import tensor
from disttrain.job.strategy_kind import Formats, Precision
from disttrain.replica.flat_model import FlatModel
from disttrain.task.errors import ModelError
from disttrain.transport.memory import OrdinaryMemory


def a_flat_model(model: nn.Module, outgoing: int = 2) -> FlatModel:
    return FlatModel(model, OrdinaryMemory(), torch.device("cpu"), outgoing_buffers=outgoing)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_flattening_keeps_every_value() -> None:
    before = Unusual().state_dict()
    model = Unusual()
    model.load_state_dict(before)

    a_flat_model(model)

    after = model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert model.out.weight is model.embed.weight


def test_parameters_are_views_of_one_vector() -> None:
    model = a_network()
    flattened = a_flat_model(model)

    flattened.parameters.fill_(0.25)

    assert all((parameter == 0.25).all() for parameter in model.parameters())


def test_backward_adds_into_the_buffer_that_is_sent() -> None:
    model = a_network()
    flattened = a_flat_model(model)
    outgoing = flattened.outgoing[1]
    flattened.collect_gradients_in(outgoing.gradient_views)

    model(torch.ones(2, 1, 8, 8)).sum().backward()

    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    sent = tensor(outgoing.gradient.buffer, placements.PARAMETERS)
    assert torch.equal(sent, torch.cat(gradients))
    assert sent.abs().sum() > 0
    assert not tensor(flattened.outgoing[0].gradient.buffer, placements.PARAMETERS).any()


def test_fetched_values_are_used_from_adopting_on_and_not_before() -> None:
    model = a_network()
    flattened = a_flat_model(model)
    before = flat(model)

    tensor(flattened.fetch_into()[placements.PARAMETERS], placements.PARAMETERS).fill_(2.0)
    assert torch.equal(flat(model), before)
    flattened.adopt(buffers=True)

    assert (flat(model) == 2.0).all()
    assert (flattened.parameters == 2.0).all()


def test_two_halves_change_places() -> None:
    model = a_network()
    flattened = a_flat_model(model)

    for value in (1.0, 2.0, 3.0):
        tensor(flattened.fetch_into()[placements.PARAMETERS], placements.PARAMETERS).fill_(value)
        flattened.adopt(buffers=True)
        assert (flat(model) == value).all()


def test_adopting_keeps_the_parameter_objects_and_their_gradients() -> None:
    model = a_network()
    flattened = a_flat_model(model)
    flattened.collect_gradients_in(flattened.outgoing[0].gradient_views)
    objects = list(model.parameters())

    flattened.adopt(buffers=False)

    assert all(a is b for a, b in zip(objects, model.parameters(), strict=True))
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_everything_that_a_model_holds_is_uploaded_and_fetched() -> None:
    source, target = Unusual(), Unusual()
    with torch.no_grad():
        for value in source.state_dict().values():
            value.copy_(torch.ones_like(value))
    uploaded = a_flat_model(source).values_to_upload()
    flattened = a_flat_model(target)

    for vector, buffer in flattened.first_fetch_into().items():
        tensor(buffer, vector).copy_(tensor(uploaded[vector], vector))
    flattened.adopt_first_fetch()

    expected, state = source.state_dict(), target.state_dict()
    # Whole numbers never go backwards.
    expected["counts"] = torch.tensor([3, 4], dtype=torch.int32)
    assert all(torch.equal(state[name], expected[name]) for name in expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_a_parameter_that_no_shard_would_take_is_named_before_it_is_sent(value: float) -> None:
    model = a_network()
    flattened = a_flat_model(model)
    name, parameter = list(model.named_parameters())[-1]
    parameter.data.view(-1)[-1] = value

    with pytest.raises(ModelError, match=rf"'{name}' holds a value .* after Task\.model\(\)"):
        flattened.values_to_upload()


def test_an_upload_leaves_what_was_fetched_meanwhile() -> None:
    model = a_normalised_network()
    flattened = a_flat_model(model)
    fetched = flattened.fetch_into()[placements.BUFFERS_FLOAT32]
    tensor(fetched, placements.BUFFERS_FLOAT32).fill_(7.0)

    uploaded = flattened.values_to_upload()[placements.BUFFERS_FLOAT32]
    flattened.adopt(buffers=True)

    assert not bool((tensor(uploaded, placements.BUFFERS_FLOAT32) == 7.0).any())
    assert bool((model.state_dict()["2.running_mean"] == 7.0).all())


def test_a_gradient_takes_the_running_statistics_along() -> None:
    model = a_normalised_network()
    flattened = a_flat_model(model)
    model(torch.randn(4, 1, 8, 8))

    outgoing = flattened.outgoing[0]
    outgoing.leave()
    outgoing.wait_left()

    counted = outgoing.buffers.vectors[placements.BUFFERS_INT64].host
    running = outgoing.buffers.vectors[placements.BUFFERS_FLOAT32].host
    assert counted.tolist() == [1]
    assert torch.equal(running[:9], model.state_dict()["2.running_mean"])


def test_a_counter_that_is_ahead_of_the_shards_stays() -> None:
    model = a_normalised_network()
    flattened = a_flat_model(model)
    model(torch.randn(4, 1, 8, 8))

    for vector, buffer in flattened.fetch_into().items():
        tensor(buffer, vector).zero_()
    flattened.adopt(buffers=True)

    assert model.state_dict()["2.num_batches_tracked"] == 1
    assert not model.state_dict()["2.running_mean"].any()


def test_memory_is_parameters_incoming_copy_and_gradient_buffers() -> None:
    class Counting(OrdinaryMemory):
        total = 0

        def allocate(self, name: str, nbytes: int):  # type: ignore[no-untyped-def]
            self.total += nbytes
            return super().allocate(name, nbytes)

    memory = Counting()
    model = nn.Linear(100, 10, bias=False)

    FlatModel(model, memory, torch.device("cpu"), outgoing_buffers=2)

    assert memory.total == 4 * 1000 * 4


def test_a_point_to_be_tried_takes_the_parameters_place_in_double_precision() -> None:
    model = Unusual().double()
    flattened = FlatModel(
        model,
        OrdinaryMemory(),
        torch.device("cpu"),
        outgoing_buffers=0,
        formats=Formats(Precision.FLOAT64),
    )
    frozen = model.frozen.weight.clone()

    torch.frombuffer(flattened.trial_into().view, dtype=torch.float64).fill_(0.125)
    flattened.land_trial()
    assert not bool((model.out.bias == 0.125).any())
    flattened.adopt(buffers=False)

    assert bool((model.out.bias == 0.125).all())
    assert bool((model.embed.weight == 0.125).all())
    assert torch.equal(model.frozen.weight, frozen)
    assert flattened.vector == placements.PARAMETERS_FLOAT64
    assert flattened.first_fetch_into().keys() >= {flattened.vector, placements.FROZEN_FLOAT64}


def test_buffers_become_again_what_was_fetched_counters_too() -> None:
    model = a_normalised_network()
    flattened = a_flat_model(model, outgoing=0)
    flattened.buffer_values()
    before = {name: value.clone() for name, value in model.named_buffers()}

    model(torch.ones(4, 1, 8, 8))
    assert any(not torch.equal(value, before[name]) for name, value in model.named_buffers())
    flattened.restore_buffers()

    assert all(torch.equal(value, before[name]) for name, value in model.named_buffers())
