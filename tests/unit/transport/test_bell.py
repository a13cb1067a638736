"""A bell that another thread rings."""

import select

from disttrain.transport.stream import Bell


def is_ringing(bell: Bell) -> bool:
    readable, _, _ = select.select([bell], [], [], 0)
    return bool(readable)


def test_it_rings_until_it_is_heard() -> None:
    bell = Bell()
    assert not is_ringing(bell)
    bell.ring()
    bell.ring()
    assert is_ringing(bell)
    bell.hear()
    assert not is_ringing(bell)
    bell.hear()
    bell.close()


def test_after_it_is_closed_nothing_is_written_anywhere() -> None:
    """The system gives the descriptor's number to whoever comes next."""
    bell = Bell()
    bell.close()
    other = Bell()

    bell.ring()
    bell.close()

    assert not is_ringing(other)
    other.close()
