"""When a process counts as alive."""

from disttrain.telemetry.exporter import Health


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_loop_whose_iteration_takes_too_long_is_not_alive_until_it_goes_on() -> None:
    clock = Clock()
    health = Health(clock)
    health.begin(60.0)
    clock.now += 60.0
    assert health.is_alive
    clock.now += 1.0
    assert not health.is_alive
    health.iterated()
    assert health.is_alive


def test_a_long_restore_and_a_long_farewell_are_no_hang() -> None:
    clock = Clock()
    health = Health(clock)
    clock.now += 3600.0
    assert health.is_alive
    health.begin(60.0)
    health.end()
    clock.now += 3600.0
    assert health.is_alive
