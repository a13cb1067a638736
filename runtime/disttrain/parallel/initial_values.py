"""The initial values of a model that nobody holds as a whole.

A model's constructor runs on tensors without memory, and what it asks of torch is recorded. Carried
out anew in the same order, it draws the same numbers as the undivided model does, one parameter
after the other: each process keeps its part of one, and drops the rest before the next.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_unflatten

from disttrain.parallel.partitioned import CannotPartition, PartOfModel, require_one_device

_ATEN = torch.ops.aten
_READ = _ATEN._local_scalar_dense.default  # noqa: SLF001  What item() asks for.
_NUMBERS = (_ATEN.lift_fresh.default, _ATEN.lift_fresh_copy.default)
"""What torch.tensor() asks for, with the numbers in a tensor."""
_OF_NUMBERS = {torch.tensor, torch.as_tensor, Tensor.new_tensor}
_NO_ARGUMENTS = tree_flatten(((), {}))[1]
_OF_MODULES = {"_parameters", "_buffers", "_modules"}
"""Where a module keeps what it has registered."""
_NOBODYS_SEED = 0x5EED_0F_A_0DD5
"""What no constructor sets, so that it is seen if one does."""


class _Place(NamedTuple):
    """A tensor of the recording: where it lies in memory that there is not."""

    storage: int
    elements: int
    """Of the storage."""
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class _Call:
    """Something that the constructor asked of torch, with places for tensors."""

    function: Any
    given: tuple[Any, ...]
    """Arguments by position and by name, flat."""
    shape: Any
    made: tuple[_Place, ...]

    @property
    def touched(self) -> set[int]:
        """Storages."""
        return {each.storage for each in (*self.given, *self.made) if isinstance(each, _Place)}


@torch.no_grad()
def give(part: PartOfModel, values: Iterable[tuple[str, Tensor]]) -> None:
    """Give a part what it has of whole parameters and buffers, in the element types that it has."""
    own = {**dict(part.named_parameters()), **dict(part.named_buffers())}
    pieces = part.pieces
    for name, value in values:
        if name in own:
            index = pieces.get(name)
            own[name].copy_(value if index is None else value[index])


class RecordedModel:
    """A model on the meta device, and how its values come about."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        """`make` is the constructor.

        Raises SeveralDevices, and CannotPartition for values that torch does not draw.
        """
        recorder, before = _Recorder(), torch.get_rng_state()
        torch.manual_seed(_NOBODYS_SEED)
        unused = torch.get_rng_state()
        try:
            with FakeTensorMode(), recorder, _Numbers(recorder):
                model = make()
            is_unused = torch.equal(torch.get_rng_state(), unused)
        finally:
            torch.set_rng_state(before)
        self._calls = recorder.calls
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        # Here they still know what was asked for; without values all are on meta.
        require_one_device(named.items())
        _refuse(named, recorder.foreign)
        _refuse_what_is_kept(model)
        if not is_unused:
            message = "the model's constructor seeds torch's random numbers; leave that to the job"
            raise CannotPartition(message)
        self._places = {name: _place(tensor) for name, tensor in named.items()}
        self.model = _on_meta(model)

    def values(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Each parameter and buffer by its name, whole, as the constructor draws it.

        One at a time: a value may be dropped before the next one is asked for.
        """
        names: dict[int, list[str]] = {}
        for name, place in self._places.items():
            names.setdefault(place.storage, []).append(name)
        last = {storage: at for at, call in enumerate(self._calls) for storage in call.touched}
        memory: dict[int, Tensor] = {}
        before = torch.get_rng_state()
        torch.manual_seed(seed)
        try:
            for at, call in enumerate(self._calls):
                _carry_out(call, memory)
                for storage in [each for each in call.touched if last[each] == at]:
                    base = memory.pop(storage)
                    for name in names.get(storage, ()):
                        # Who gets a value may draw numbers of its own.
                        after = torch.get_rng_state()
                        yield name, _view(base, self._places[name])
                        torch.set_rng_state(after)
        finally:
            torch.set_rng_state(before)

    def initialise(self, part: PartOfModel, seed: int) -> None:
        """Give a part its values of the whole model, in the element types that it has.

        It has memory, as by `to_empty`.
        """
        give(part, self.values(seed))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []
        self.foreign: dict[int, str] = {}
        """Storages into which values went that are not of the recording, and by which call."""
        self.takes_numbers = False
        """Whether numbers that come now are the constructor's own, and no array of NumPy's."""
        self._constants: dict[int, Tensor] = {}
        """By storage, as long as nothing changes them."""
        self._kept: list[Tensor] = []
        """All of them: a storage's number may come again once it is gone."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        if func is _READ:
            return self._read(args[0])
        given, shape = tree_flatten((args, kwargs or {}))
        tensors = [each for each in given if isinstance(each, Tensor)]
        brought = [each for each in tensors if not isinstance(each, FakeTensor)]
        if brought and func not in _NUMBERS:
            into = next((each for each in tensors if isinstance(each, FakeTensor)), None)
            if into is None:
                with _disable_current_modes():
                    return func(*args, **(kwargs or {}))
            self.foreign[_place(into).storage] = str(func)
            return into
        made = func(*args, **(kwargs or {}))
        outputs = [each for each in tree_flatten(made)[0] if isinstance(each, Tensor)]
        self._kept += tensors + outputs
        if brought:
            self._bring(brought[0], outputs[0])
            return made
        if any(_place(each).storage in self.foreign for each in tensors):
            self.foreign |= {_place(each).storage: str(func) for each in outputs}
        if func._schema.is_mutable:  # noqa: SLF001  Whether it works in place.
            for each in outputs:
                self._constants.pop(_place(each).storage, None)
        places = tuple(_place(each) if isinstance(each, Tensor) else each for each in given)
        self.calls.append(_Call(func, places, shape, tuple(map(_place, outputs))))
        return made

    def _bring(self, value: Tensor, made: Tensor) -> None:
        if not self.takes_numbers:
            self.foreign[_place(made).storage] = "its constructor"
        with _disable_current_modes():
            constant = value.detach().clone()
        self.calls.append(_Call(constant.clone, (), _NO_ARGUMENTS, (_place(made),)))
        self._constants[_place(made).storage] = constant

    def _read(self, tensor: Tensor) -> Any:
        place = _place(tensor)
        constant = self._constants.get(place.storage)
        if constant is None:
            message = (
                "the model's constructor reads the value of a tensor, as item() does; as long as "
                "nobody holds the model there is none"
            )
            raise CannotPartition(message)
        with _disable_current_modes():
            return _view(constant.flatten(), place).item()


class _Numbers(TorchFunctionMode):
    """Notices what makes a tensor of numbers, such as torch.tensor()."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        del types
        is_array = any(type(each).__module__ == "numpy" for each in args)
        self._recorder.takes_numbers = func in _OF_NUMBERS and not is_array
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._recorder.takes_numbers = False


def _refuse(named: Mapping[str, Tensor], foreign: Mapping[int, str]) -> None:
    for name, tensor in named.items():
        is_drawn = isinstance(tensor, FakeTensor)
        call = foreign.get(_place(tensor).storage) if is_drawn else "its constructor"
        if call is not None:
            message = (
                f"{name}: {call} takes values that torch did not draw, such as NumPy's; draw "
                "them by torch, so that each process can draw its own"
            )
            raise CannotPartition(message)


def _refuse_what_is_kept(model: nn.Module) -> None:
    """Parameters over the same memory, and tensors that are neither parameter nor buffer."""
    owners: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        owner = owners.setdefault(_place(parameter).storage, name)
        if owner != name:
            message = f"{name}: it lies in the memory of {owner}; let each have memory of its own"
            raise CannotPartition(message)
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if key not in _OF_MODULES}
        kept = next((key for key, value in own.items() if lacks_values(value)), None)
        if kept is not None:
            message = (
                f"{name}: {kept} is a tensor, and neither parameter nor buffer; use register_buffer"
            )
            raise CannotPartition(message)


def lacks_values(kept: object) -> bool:
    """Whether it is, or directly holds, a tensor of a recording."""
    if isinstance(kept, nn.Module):
        held: list[object] = [*kept.parameters(), *kept.buffers()]
    elif isinstance(kept, dict):
        held = list(kept.values())
    else:
        held = list(kept) if isinstance(kept, list | tuple | set) else [kept]
    tensors = [each for each in held if isinstance(each, Tensor)]
    return any(isinstance(each, FakeTensor) or each.is_meta for each in tensors)


def _on_meta(model: nn.Module) -> nn.Module:
    """The same modules, with parameters and buffers that partitions can take parts of."""
    known: dict[int, Tensor] = {}

    def there(tensor: Tensor) -> Tensor:
        if id(tensor) not in known:
            empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            is_parameter = isinstance(tensor, nn.Parameter)
            known[id(tensor)] = nn.Parameter(empty, tensor.requires_grad) if is_parameter else empty
        return known[id(tensor)]

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, there(parameter))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, there(buffer))
    return model


def _place(tensor: Tensor) -> _Place:
    storage = tensor.untyped_storage()
    return _Place(
        storage=storage._cdata,  # noqa: SLF001  Nothing else names a storage.
        elements=storage.nbytes() // tensor.element_size(),
        size=tuple(tensor.shape),
        stride=tensor.stride(),
        offset=int(tensor.storage_offset()),
    )


def _view(base: Tensor, place: _Place) -> Tensor:
    return base.as_strided(place.size, place.stride, place.offset)


def _carry_out(call: _Call, memory: dict[int, Tensor]) -> None:
    given = [
        _view(memory[each.storage], each) if isinstance(each, _Place) else each
        for each in call.given
    ]
    args, kwargs = tree_unflatten(given, call.shape)
    with torch.no_grad():
        made = call.function(*args, **kwargs)
    outputs = [each for each in tree_flatten(made)[0] if isinstance(each, Tensor)]
    for place, tensor in zip(call.made, outputs, strict=True):
        if place.storage not in memory:
            memory[place.storage] = tensor.detach().as_strided((place.elements,), (1,), 0)
