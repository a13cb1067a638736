"""When a request without an answer is sent again."""

from disttrain.coordinator.protocol.control import Outstanding


def _sent_again(chance: float, longest_seconds: float = 8.0) -> list[float]:
    """Seconds at which one request is due within a minute."""
    outstanding = Outstanding(lambda: chance, longest_seconds)
    outstanding.sent(outstanding.add(b"join"), 0.0)
    found = []
    for now in (tenth / 10 for tenth in range(1, 600)):
        for number, _ in outstanding.due(now):
            outstanding.sent(number, now)
            found.append(now)
    return found


def test_the_pauses_grow_up_to_the_longest() -> None:
    assert _sent_again(0.0) == [1.0, 3.0, 7.0, 15.0, 23.0, 31.0, 39.0, 47.0, 55.0]


def test_chance_keeps_members_apart() -> None:
    assert _sent_again(1.0)[:3] == [1.5, 4.5, 10.5]


def test_no_pause_is_longer_than_was_told() -> None:
    assert _sent_again(0.0, longest_seconds=0.5)[:3] == [0.5, 1.0, 1.5]


def test_what_is_answered_is_sent_no_more() -> None:
    outstanding = Outstanding(lambda: 0.0)
    number = outstanding.add(b"join")
    assert outstanding.waits(number)
    outstanding.answered(number)
    assert not outstanding.waits(number)
    assert outstanding.due(9.0) == []
