"""What the weather does to messages in memory, and how virtual threads take turns and die."""

import random

import pytest

from builders.transports import a_config, a_header
from disttrain.transport.config import TransportKind
from disttrain.transport.header import Role, Verb
from disttrain.transport.in_memory import InMemoryTransport, Network, Weather
from disttrain.transport.interface import Slice
from disttrain.transport.virtual_time import Bell, Killed, VirtualTime

MESSAGES = 12


def received(weather: Weather, seed: int = 1) -> list[int]:
    """Numbers in the order of their arrival; 0 to 11 were sent."""
    network = Network(VirtualTime(), random.Random(seed), weather)
    transport = InMemoryTransport(network, a_config(TransportKind.TCP))
    listener = transport.listen("tcp://somewhere:0")
    channel = transport.connect(listener.address, Role.SHARD)
    for number in range(MESSAGES):
        channel.send(a_header(Verb.PUSH, sequence=number))
    found = []
    while (request := listener.receive(10.0)) is not None:
        found.append(request.header.sequence)
    return found


def test_good_weather_keeps_everything_in_its_order() -> None:
    assert received(Weather(longest=5.0)) == list(range(MESSAGES))


def test_messages_are_lost_doubled_and_overtaken_as_a_seed_says() -> None:
    assert set(received(Weather(loss=0.5))) < set(range(MESSAGES))
    assert len(received(Weather(duplication=0.5))) > MESSAGES
    late = received(Weather(overtaking=0.5, longest=5.0))
    assert sorted(late) == list(range(MESSAGES)) != late
    assert late == received(Weather(overtaking=0.5, longest=5.0))


def test_a_push_is_read_where_its_sender_has_it() -> None:
    network = Network(VirtualTime())
    transport = InMemoryTransport(network, a_config(TransportKind.TCP))
    listener = transport.listen("tcp://somewhere:0")
    buffer = transport.memory("replica").allocate("gradient", 1)
    transport.connect(listener.address).send(a_header(Verb.PUSH), Slice(buffer, 0, 1))
    buffer.view[0] = 7
    request = listener.receive(1.0)
    assert request is not None
    assert bytes(request.payload) == b"\7"


def test_time_moves_to_what_is_due_next_and_no_further() -> None:
    time, said = VirtualTime(), list[tuple[str, float]]()

    def wait_twice(name: str, seconds: float) -> None:
        for _ in range(2):
            time.wait(seconds)
            said.append((name, time.now))

    time.start(lambda: wait_twice("slow", 3.0))
    time.start(lambda: wait_twice("fast", 2.0))
    time.wait(5.0)
    assert said == [("fast", 2.0), ("slow", 3.0), ("fast", 4.0)]
    time.close()


def test_a_bell_ends_a_wait_unless_the_thread_sleeps() -> None:
    time, woken = VirtualTime(), list[float]()
    bell = Bell(time)

    def wait() -> None:
        time.wait(100.0, [bell])
        woken.append(time.now)

    time.start(wait)
    asleep = time.start(wait)
    time.wait(1.0)
    asleep.paused_until = 4.0
    bell.ring()
    time.wait(10.0)
    assert woken == [1.0, 4.0]


def test_the_killed_do_nothing_more_and_other_errors_are_heard() -> None:
    time, ended = VirtualTime(), list[str]()

    def live() -> None:
        try:
            time.wait(10.0)
            ended.append("lived")
        finally:
            with pytest.raises(Killed):
                time.wait(1.0)

    time.kill(time.start(live))
    victim = time.start(live)
    time.wait(1.0)
    time.kill(victim)
    time.wait(20.0)
    assert not ended

    def fail() -> None:
        raise ValueError(1)

    time.start(fail)
    with pytest.raises(ValueError, match="1"):
        time.wait(1.0)
