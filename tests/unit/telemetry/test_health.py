"""When a process counts as alive."""

from builders import free_port
from builders.scraping import asked
from disttrain.job.pod_layout import HEALTH_PATH, READY_PATH
from disttrain.telemetry import exporter
from disttrain.telemetry.exporter import Health, Served
from disttrain.telemetry.metrics import gauge


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


def test_what_answers_early_gives_its_address_to_the_metrics() -> None:
    address = f"127.0.0.1:{free_port.find()}"
    early = exporter.answer_early(address)
    assert asked(address, HEALTH_PATH).status == 200
    assert asked(address, READY_PATH).status == 503
    early.begin(0.0)
    assert asked(address, HEALTH_PATH).status == 503
    served = Served(address, (gauge("life", "A life.", 1.0),))
    assert served.address == address
    assert asked(address, HEALTH_PATH).status == 200
    assert "disttrain_life" in asked(address, "/metrics").body
