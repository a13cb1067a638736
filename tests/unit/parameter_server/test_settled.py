from disttrain.parameter_server.settled import Settled


def test_settled_is_the_oldest_checkpoint_that_is_kept() -> None:
    settled = Settled(kept=2)
    said = [settled.cut(1, 10, None), settled.cut(2, 20, 1), settled.cut(3, 30, 2)]
    assert said == [None, None, 10]
    assert settled.cut(4, 40, 3) == 20


def test_a_checkpoint_that_was_not_committed_settles_nothing() -> None:
    settled = Settled(kept=1)
    settled.cut(1, 10, None)
    settled.cut(2, 20, None)
    assert settled.cut(3, 30, 2) == 20
    assert settled.cut(4, 40, 2) is None


def test_of_checkpoints_of_earlier_lives_nothing_is_known() -> None:
    assert Settled(kept=1).cut(8, 80, 7) is None
