"""What a client says to a shard as it begins."""

from dataclasses import replace
from unittest.mock import Mock

import pytest

from builders import placements
from disttrain.parameter_server.conversation import ClientConfig, Identity, ShardLink
from disttrain.parameter_server.errors import RequestRefused
from disttrain.parameter_server.messages import Side, Welcome, encode_welcome
from disttrain.transport.header import EMPTY, Header, Verb
from disttrain.transport.interface import Message


class Heard:
    """A channel that takes everything."""

    def __init__(self) -> None:
        self.headers: list[Header] = []

    def send(self, header: Header, payload: bytes, *, reply_into: object) -> None:
        assert not payload
        assert reply_into is None
        self.headers.append(header)

    def close(self) -> None:
        pass


PLACEMENT = replace(placements.a_placement({placements.PARAMETERS: 4}), epoch=3)


def a_link(heard: Heard) -> ShardLink:
    config = ClientConfig(
        transport=Mock(connect=lambda *_: heard, now=lambda: 1.0),
        identity=Identity(0, 1),
        directory=lambda: (),
        placement=PLACEMENT,
    )
    return ShardLink(config, Side.PUSH, 0, 0)


def test_each_connection_has_a_higher_number_than_all_before() -> None:
    heard = Heard()
    links = [a_link(heard), a_link(heard)]
    for incarnation in (1, 2):
        for link in links:
            link.follow("tcp://shard", incarnation)
            link.greet_if_due(sequence=1)

    numbers = [header.first for header in heard.headers]
    assert len(set(numbers)) == 4
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("holder", "epoch", "is_ours"), [(0, 3, True), (0, 2, False), (0, 4, False), (1, 3, False)]
)
def test_a_shard_that_goes_by_another_placement_is_refused(
    holder: int, epoch: int, *, is_ours: bool
) -> None:
    link = a_link(Heard())
    payload = encode_welcome(Welcome(holder=holder, epoch=epoch, chunk_bytes=8))
    welcome = Message(EMPTY._replace(verb=Verb.WELCOME, incarnation=1), memoryview(payload))
    if is_ours:
        assert link.open(welcome)
        assert link.share is not None
        assert link.share.num_chunks(placements.PARAMETERS) == 2
        return
    with pytest.raises(RequestRefused, match=f"holder {holder} of placement {epoch}"):
        link.open(welcome)
    assert link.share is None
