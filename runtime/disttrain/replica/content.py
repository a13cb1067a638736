"""Reads some examples of each split, by which a run and whoever joins it compare their data."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from disttrain.coordinator.protocol.content import Example
from disttrain.replica.pipeline import read
from disttrain.replica.task_calls import Examples
from disttrain.task.sources import SourcesReader
from disttrain.task.task import Split

EXAMPLES = 32
"""Of a split. Data of which a tenth differs is found by 29 of 30 such choices."""
SECONDS = 10.0
"""For a split: what is not read by then is not compared."""
MOST_VALUES = 1 << 20
"""The first ones of an array: the others are not compared."""
_DIGEST_BYTES = 8


def sketch(
    split: Split, examples: Examples, seed: int, clock: Callable[[], float] = time.monotonic
) -> tuple[Example, ...]:
    """Examples of a split that all machines with this seed choose. Raises TaskError.

    Each is read twice. One that is another one then draws random numbers, and is left out.
    """
    end = clock() + SECONDS
    found: list[Example] = []
    for index in _chosen(split, examples, seed):
        once, again = (_example(split, index, read(examples.dataset, [index])) for _ in range(2))
        if once == again:
            found.append(once)
        if clock() >= end:
            break
    return tuple(found)


def _chosen(split: Split, examples: Examples, seed: int) -> list[int]:
    """By the seed; of data that is read in order, the first one of a source, which costs least."""
    dataset = examples.dataset
    places = dataset.begins if isinstance(dataset, SourcesReader) else range(examples.count)
    texts = (f"{seed} {split} {number}".encode() for number in range(EXAMPLES))
    drawn = (hashlib.blake2b(text, digest_size=_DIGEST_BYTES).digest() for text in texts)
    chosen = (places[int.from_bytes(one, "little") % len(places)] for one in drawn if places)
    return list(dict.fromkeys(chosen))


def _example(split: Split, index: int, samples: Any) -> Example:
    sums = _Sums()
    for name, value in _leaves("", samples):
        sums.add(name, value)
    return Example(
        split=split.value,
        index=index,
        digest=sums.digest.hexdigest(),
        length=float(np.sqrt(sums.squares)),
        sum=sums.sum,
    )


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The values of a nested example, each with the way to it."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _leaves(f"{name}.{key}", value[key])
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _leaves(f"{name}[{number}]", part)
    else:
        yield name, value


@dataclass(slots=True)
class _Sums:
    """What is kept of the values of an example."""

    digest: Any = field(default_factory=lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES))
    squares: float = 0.0
    sum: float = 0.0
    count: int = 0

    def add(self, name: str, value: Any) -> None:
        array = _array(value)
        shape = "" if array is None else f"{getattr(value, 'dtype', '')} {array.shape}"
        self._note(f"{name} {type(value).__name__} {shape}".encode())
        if array is None:
            # Of other objects the type alone is compared: they may print as where they lie.
            self._note(value if isinstance(value, bytes) else b"")
            self._note(value.encode() if isinstance(value, str) else b"")
        elif array.dtype.kind in "fc":
            self._sum(array.ravel()[:MOST_VALUES])
        elif array.dtype.kind in "biu":
            self._note(np.ascontiguousarray(array.ravel()[:MOST_VALUES]).tobytes())

    def _note(self, content: bytes) -> None:
        self.digest.update(len(content).to_bytes(8, "little") + content)

    def _sum(self, values: NDArray[Any]) -> None:
        real = np.concatenate([values.real, values.imag]) if values.dtype.kind == "c" else values
        numbers = np.nan_to_num(real.astype(np.float64), posinf=0.0, neginf=0.0)
        places = np.arange(self.count, self.count + len(numbers), dtype=np.float64)
        # The phase grows with the square, so that no smooth picture is balanced out.
        self.sum += float(numbers @ np.cos(places**2))
        self.squares += float(numbers @ numbers)
        self.count += len(numbers)


def _array(value: Any) -> NDArray[Any] | None:
    """None: it is no number and no array."""
    if isinstance(value, Tensor):
        whole = value.detach().cpu()
        is_known = whole.layout is torch.strided and not whole.is_quantized
        if not is_known:
            return None
        return (whole.float() if whole.dtype is torch.bfloat16 else whole).resolve_conj().numpy()
    if isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return np.asarray(value)
    return None
