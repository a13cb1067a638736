"""What was heard lately: whose silence counts, and what the loss is."""

from disttrain.coordinator.protocol.fields import MemberId
from disttrain.coordinator.protocol.reports import ReplicaReport
from disttrain.coordinator.status.watch import Watch
from disttrain.transport.header import Role

ONE = MemberId(role=Role.REPLICA, index=0, incarnation=1)
OTHER = MemberId(role=Role.REPLICA, index=1, incarnation=1)


def test_a_long_pause_of_the_coordinator_is_nobodys_silence() -> None:
    watch = Watch()
    watch.hear(ONE, 0.0)
    watch.forgive(600.0, 601.0)
    assert watch.silence(ONE, 602.0) == 2.0


def test_a_coordinator_that_is_always_slow_does_not_forgive_for_ever() -> None:
    watch, now = Watch(), 0.0
    watch.hear(ONE, now)
    watch.hear(OTHER, now)
    for _ in range(100):
        now += 2.0
        watch.hear(OTHER, now)
        watch.forgive(2.0, now)
    assert watch.silence(ONE, now) > 150.0
    assert watch.silence(OTHER, now) == 0.0


def note(watch: Watch, now: float, *, steps: int, loss_sum: float) -> None:
    watch.replicas = {ONE: ReplicaReport(loss_sum=loss_sum, loss_steps=steps)}
    watch.note(steps * 8, ReplicaReport(), now)


def test_the_loss_is_that_of_the_last_seconds() -> None:
    watch = Watch()
    note(watch, 0.0, steps=0, loss_sum=0.0)
    assert watch.loss is None
    note(watch, 1.0, steps=100, loss_sum=900.0)
    assert watch.loss == 9.0
    note(watch, 5.0, steps=200, loss_sum=1000.0)
    note(watch, 10.5, steps=300, loss_sum=1020.0)
    assert watch.loss == 0.2


def test_while_no_step_ends_the_loss_stays_what_it_was() -> None:
    watch = Watch()
    note(watch, 0.0, steps=0, loss_sum=0.0)
    note(watch, 1.0, steps=100, loss_sum=900.0)
    note(watch, 7.0, steps=200, loss_sum=920.0)
    for now in range(8, 30):
        note(watch, float(now), steps=200, loss_sum=920.0)
    assert watch.loss == 0.2, "and not the mean over the whole run"


def test_steps_that_are_further_apart_than_a_window_are_seen() -> None:
    watch = Watch()
    for step in range(1, 5):
        note(watch, 60.0 * step, steps=step, loss_sum=float(10 - step))
        assert watch.samples_per_second() == (8 / 60 if step > 1 else 0.0)
    assert watch.loss == -1.0


def test_what_was_before_a_coordinator_came_back_is_not_lately() -> None:
    watch = Watch()
    note(watch, 0.0, steps=1000, loss_sum=9000.0)
    assert watch.loss is None
    note(watch, 1.0, steps=1010, loss_sum=9002.0)
    assert watch.loss == 0.2
