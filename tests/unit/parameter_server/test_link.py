"""What a client says to a shard as it begins."""

from typing import Any, cast

from builders import placements
from disttrain.parameter_server.link import LinkConfig, ShardLink
from disttrain.parameter_server.messages import Identity, Side
from disttrain.transport.header import Header


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


def test_each_connection_has_a_higher_number_than_all_before() -> None:
    heard = Heard()
    config = LinkConfig(
        identity=Identity(0, 1),
        side=Side.PUSH,
        shard=0,
        placement=placements.a_placement({placements.PARAMETERS: 4}),
        connect=lambda _: cast(Any, heard),
    )
    links = [ShardLink(config), ShardLink(config)]
    for life in (1, 2):
        for link in links:
            link.follow("tcp://shard", life)
            link.greet_if_due(sequence=1)

    numbers = [header.first for header in heard.headers]
    assert len(set(numbers)) == 4
    assert numbers == sorted(numbers)
