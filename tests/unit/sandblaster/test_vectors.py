"""Commands on a shard's part of the vectors do what numpy does on whole ones."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest

from disttrain.sandblaster import kernels, vectors
from disttrain.sandblaster import operations as ops
from disttrain.sandblaster.errors import UnknownVector
from disttrain.sandblaster.kernels import BLOCK_ELEMENTS, Row
from disttrain.sandblaster.operations import Operation
from disttrain.sandblaster.vectors import Vectors

LENGTH = 2 * BLOCK_ELEMENTS + 37


def some_vectors(
    elements: int = LENGTH, kind: type[np.float64 | np.float32] = np.float64
) -> Vectors:
    vectors, random = Vectors(elements, kind), np.random.default_rng(1)
    for name in ("a", "b", "c"):
        vectors.make(name)[:] = random.standard_normal(elements)
    return vectors


def test_a_combination_may_be_written_over_one_of_its_vectors() -> None:
    vectors = some_vectors()
    wanted = 2 * vectors["a"] - vectors["b"] + 0.5 * vectors["c"]

    vectors.perform([ops.Combine(target="b", terms={"a": 2.0, "b": -1.0, "c": 0.5})])

    assert np.allclose(vectors["b"], wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize(
    ("operation", "name", "wanted"),
    [
        (ops.Scale(vector="a", factor=3.0), "a", lambda v: 3 * v["a"]),
        (ops.Combine(target="b", terms={"b": 1.0, "a": 2.0}), "b", lambda v: v["b"] + 2 * v["a"]),
        (ops.Copy(source="a", target="d"), "d", lambda v: v["a"].copy()),
        (ops.Swap(first="a", second="b"), "a", lambda v: v["b"].copy()),
    ],
    ids=["scale", "combine", "copy", "swap"],
)
def test_each_operation_writes_its_target(operation: Operation, name: str, wanted: object) -> None:
    vectors = some_vectors()
    assert callable(wanted)
    expected = wanted(vectors)

    assert vectors.perform([operation]) == ()
    assert np.array_equal(vectors[name], expected)


def test_scalars_come_in_the_order_of_the_operations() -> None:
    vectors = some_vectors()
    a, b = vectors["a"], vectors["b"]

    command: list[Operation] = [
        ops.Extent(vector="a"),
        ops.Dots(vector="a", others=("a", "b")),
        ops.Gram(vectors=("a", "b")),
    ]
    answer = vectors.perform(command)

    wanted = [np.abs(a).sum(), np.abs(a).max(), a @ a, a @ b, a @ a, a @ b, b @ b]
    assert answer == pytest.approx(wanted, rel=1e-12)


def test_a_command_sees_what_it_has_written_and_exchanged() -> None:
    vectors = some_vectors()
    a, b = vectors["a"].copy(), vectors["b"].copy()

    answer = vectors.perform(
        [
            ops.Swap(first="a", second="b"),
            ops.Combine(target="d", terms={"a": 1.0, "b": 2.0}),
            ops.Dots(vector="d", others=("b",)),
        ]
    )

    assert answer == pytest.approx([(b + 2 * a) @ a], rel=1e-12)


def test_a_command_with_an_unknown_vector_changes_nothing() -> None:
    vectors = some_vectors()
    before = vectors["a"].copy()

    with pytest.raises(UnknownVector, match="no vector 'x' here; there are a, b, c"):
        vectors.perform([ops.Scale(vector="a", factor=2.0), ops.Copy(source="x", target="d")])

    assert np.array_equal(vectors["a"], before)
    assert "d" not in vectors.names


def test_long_products_of_float32_are_added_up_in_float64() -> None:
    ones = Vectors(200 * BLOCK_ELEMENTS, np.float32)
    ones.make("a")[:] = np.random.default_rng(2).uniform(0.5, 1.5, ones.elements)
    exact = float(np.sum(np.square(ones["a"], dtype=np.float64)))

    (answer,) = ones.perform([ops.Dots(vector="a", others=("a",))])

    assert answer == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("blocks", [1, 7, 60])
@pytest.mark.parametrize("values", ["of one sign", "of both signs", "of many sizes"])
def test_products_of_float32_are_as_exact_as_a_block_is(values: str, blocks: int) -> None:
    """Against float64; the error does not grow with the vectors' length.

    What may be lost within a block is 8192 roundings of what all terms come to with one sign; a
    library that adds several terms side by side loses far less.
    """
    chance = np.random.default_rng(blocks)
    vectors = Vectors(blocks * BLOCK_ELEMENTS, np.float32)
    for name in ("a", "b"):
        drawn = chance.standard_normal(vectors.elements)
        if values == "of one sign":
            drawn = np.abs(drawn)
        if values == "of many sizes":
            drawn *= np.exp(chance.uniform(-12, 12, vectors.elements))
        vectors.make(name)[:] = drawn
    products = vectors["a"].astype(np.float64) * vectors["b"].astype(np.float64)
    exact, size = math.fsum(products), math.fsum(np.abs(products))

    command = [ops.Dots(vector="a", others=("b",)), ops.Dots(vector="b", others=("a", "b"))]
    one, other, _ = vectors.perform(command)

    for answer in (one, other):
        assert abs(answer - exact) <= BLOCK_ELEMENTS * 2.0**-24 * size
        assert abs(answer - exact) <= 2.0**-20 * size


def test_not_a_number_is_the_largest_on_any_shard() -> None:
    vectors = some_vectors()
    vectors["a"][LENGTH - 1] = np.nan
    command = [ops.Extent(vector="a")]
    here, there = vectors.perform(command), some_vectors(100).perform(command)

    for answers in ([here, there], [there, here]):
        assert np.isnan(ops.merged(command, answers)[1])


def test_an_empty_part_answers_zeros() -> None:
    vectors = some_vectors(0)

    assert vectors.perform([ops.Extent(vector="a"), ops.Gram(vectors=("a",))]) == (0.0, 0.0, 0.0)


def test_many_vectors_are_combined_wherever_they_lie() -> None:
    """More than one matrix holds them, and the combination takes some of each."""
    vectors, random = Vectors(50, np.float64), np.random.default_rng(4)
    names = [f"v{number}" for number in range(70)]
    for name in names:
        vectors.make(name)[:] = random.standard_normal(50)
    chosen = names[2:5] + names[30:34] + names[69:] + names[:1]
    factors = dict(zip(chosen, random.standard_normal(len(chosen)), strict=True))
    wanted = sum(factor * vectors[name] for name, factor in factors.items())
    dots = [vectors[name] @ vectors["v40"] for name in chosen]

    answer = vectors.perform(
        [ops.Dots(vector="v40", others=tuple(chosen)), ops.Combine(target="v3", terms=factors)]
    )

    assert answer == pytest.approx(dots, rel=1e-12)
    assert np.allclose(vectors["v3"], wanted, rtol=1e-12)


def test_a_vector_that_is_not_finite_spoils_no_combination_without_it() -> None:
    """Rows beside it are read in one go."""
    vectors = some_vectors()
    vectors["b"][:] = np.inf

    vectors.perform([ops.Combine(target="d", terms={"a": 1.0, "c": 1.0})])

    assert np.isfinite(vectors["d"]).all()


NAMES = tuple(f"v{number}" for number in range(40))


def some_of_everything(kind: type[np.float64 | np.float32] = np.float32) -> tuple[float, ...]:
    """Answers of a command with every kind of sum; the vectors lie in two matrices."""
    found, random = Vectors(9 * BLOCK_ELEMENTS + 77, kind), np.random.default_rng(6)
    for name in NAMES:
        found.make(name)[:] = random.standard_normal(found.elements)
    chosen = (*NAMES[30:36], *NAMES[3:8], "v0", "v39")
    return found.perform(
        [
            ops.Dots(vector="v3", others=chosen),
            ops.Gram(vectors=chosen),
            ops.Combine(target="made", terms=dict.fromkeys(chosen, 0.3)),
            ops.Combine(target="made", terms={"made": 1.0, "v1": 0.7}),
            ops.Extent(vector="made"),
            ops.Dots(vector="made", others=("made",)),
        ]
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("blocks", [1, 3, 100])
def test_the_bits_do_not_depend_on_how_much_is_done_at_once(
    monkeypatch: pytest.MonkeyPatch, blocks: int, kind: type[np.float64 | np.float32]
) -> None:
    wanted = some_of_everything(kind)

    for module in (kernels, vectors):
        monkeypatch.setattr(module, "STRETCH_ELEMENTS", blocks * BLOCK_ELEMENTS)

    assert some_of_everything(kind) == wanted


@pytest.mark.parametrize("threads", [1, 3])
def test_the_bits_do_not_depend_on_threads(threads: int) -> None:
    answer = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert answer.stdout.strip() == str(some_of_everything())


def test_neighbours_come_in_the_order_of_their_places_wherever_their_memory_is() -> None:
    """Sums are added up in this order: memory that lies elsewhere must not give other bits."""
    low, high = sorted((np.zeros((2, 1)), np.zeros((2, 1))), key=id)
    rows = [Row(low, 0, 2), Row(high, 1, 1), Row(high, 0, 0)]

    assert [places for _, places in kernels.runs(rows)] == [[2, 1], [0]]


def test_products_of_all_with_all_are_those_of_each_pair() -> None:
    found, random = Vectors(LENGTH, np.float64), np.random.default_rng(8)
    for name in NAMES:
        found.make(name)[:] = random.standard_normal(LENGTH)
    chosen = ("v9", "v2", "v33", "v3", "v32", "v0")

    answer = found.perform([ops.Gram(vectors=chosen)])

    wanted = [
        found[left] @ found[right]
        for place, left in enumerate(chosen)
        for right in chosen[: place + 1]
    ]
    assert answer == pytest.approx(wanted, rel=1e-11, abs=1e-9)


if __name__ == "__main__":
    print(some_of_everything())  # noqa: T201  for the test that starts this file
