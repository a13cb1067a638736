"""Inner products by linearity are those of the vectors."""

import numpy as np
import pytest

from disttrain.sandblaster.products import Products, of_gram

RANDOM = np.random.default_rng(3)
VECTORS = {name: RANDOM.standard_normal(7) for name in ("a", "b", "c")}


def known(*names: str) -> Products:
    products = Products(table={})
    for index, name in enumerate(names):
        others = names[: index + 1]
        products = products.extended(
            name, {one: float(VECTORS[one] @ VECTORS[name]) for one in others}
        )
    return products


def test_combinations_have_the_products_of_their_vectors() -> None:
    left, right = {"a": 2.0, "b": -1.0}, {"b": 0.5, "c": 3.0}
    wanted = (2 * VECTORS["a"] - VECTORS["b"]) @ (0.5 * VECTORS["b"] + 3 * VECTORS["c"])

    assert known("a", "b", "c").of(left, right) == pytest.approx(wanted, rel=1e-12)


def test_a_vector_may_be_defined_by_others() -> None:
    products = known("a", "b").defined("d", {"a": 1.0, "b": -2.0})
    made = VECTORS["a"] - 2 * VECTORS["b"]

    assert products.names == ("a", "b", "d")
    assert products.table["b"]["d"] == pytest.approx(VECTORS["b"] @ made, rel=1e-12)
    assert products.of({"d": 1.0}, {"d": 1.0}) == pytest.approx(made @ made, rel=1e-12)


def test_a_vector_may_be_defined_by_itself() -> None:
    products = known("a", "b").defined("a", {"a": 3.0, "b": 1.0})

    assert products.table["a"]["a"] == pytest.approx(
        np.sum((3 * VECTORS["a"] + VECTORS["b"]) ** 2), rel=1e-12
    )


def test_a_renamed_vector_comes_last() -> None:
    products = known("a", "b", "c").renamed("a", "x")

    assert products.names == ("b", "c", "x")
    assert products.table["x"]["b"] == known("a", "b").table["a"]["b"]


def test_the_answer_of_all_products_is_read_row_by_row() -> None:
    wanted = known("a", "b", "c")
    scalars = [wanted.table[one][two] for i, one in enumerate("abc") for two in "abc"[: i + 1]]

    assert of_gram(("a", "b", "c"), scalars) == wanted


def test_what_cancels_has_a_large_magnitude() -> None:
    products = known("a", "b").defined("near", {"a": 1.0, "b": 1e-6})

    change = {"near": 1.0, "a": -1.0}

    assert products.magnitude(change, change) > 1e10 * abs(products.of(change, change))
