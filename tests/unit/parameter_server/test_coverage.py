"""When a shard forgets what it knows of lives that are over."""

from disttrain.parameter_server.coverage import Coverage
from disttrain.parameter_server.deliveries import SenderLife

ONE, TWO = SenderLife(0, 1), SenderLife(1, 3)


def test_a_life_is_forgotten_after_the_checkpoint_that_holds_its_end() -> None:
    coverage = Coverage(kept=1)
    assert coverage.cut(1, None) == set()
    coverage.end(ONE)
    assert coverage.cut(2, 1) == set(), "it was cut before"
    coverage.end(TWO)
    assert coverage.cut(3, 2) == {ONE}
    assert coverage.cut(4, 3) == {TWO}
    assert coverage.cut(5, 4) == set()


def test_a_checkpoint_that_failed_covers_nothing() -> None:
    coverage = Coverage(kept=1, over=[ONE])
    coverage.cut(1, None)
    assert coverage.cut(2, None) == set()
    assert coverage.cut(3, 2) == {ONE}


def test_every_checkpoint_that_is_kept_must_hold_it() -> None:
    coverage = Coverage(kept=3, over=[ONE])
    assert [coverage.cut(n, n - 1 or None) for n in range(1, 6)] == [
        set(),
        set(),
        set(),
        {ONE},
        set(),
    ]
