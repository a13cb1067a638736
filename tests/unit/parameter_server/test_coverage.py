"""When a shard forgets what it knows of incarnations that are over."""

from disttrain.parameter_server.deliveries import Coverage, NotesAtCuts, SenderIncarnation

ONE, TWO = SenderIncarnation(0, 1), SenderIncarnation(1, 3)


def test_an_incarnation_is_forgotten_after_the_checkpoint_that_holds_its_end() -> None:
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


def test_settled_is_the_oldest_checkpoint_that_is_kept() -> None:
    settled: NotesAtCuts[int] = NotesAtCuts(checkpoints=2)
    said = [settled.cut(1, 10, None), settled.cut(2, 20, 1), settled.cut(3, 30, 2)]
    assert said == [None, None, 10]
    assert settled.cut(4, 40, 3) == 20


def test_a_checkpoint_that_was_not_committed_settles_nothing() -> None:
    settled: NotesAtCuts[int] = NotesAtCuts(checkpoints=1)
    settled.cut(1, 10, None)
    settled.cut(2, 20, None)
    assert settled.cut(3, 30, 2) == 20
    assert settled.cut(4, 40, 2) is None


def test_of_checkpoints_of_earlier_incarnations_nothing_is_known() -> None:
    settled: NotesAtCuts[int] = NotesAtCuts(checkpoints=1)
    assert settled.cut(8, 80, 7) is None
