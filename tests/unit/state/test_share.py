"""How a holder's share of the vectors travels."""

import pytest

from builders import placements


@pytest.mark.parametrize("name", ["parameters", "prediction"])
def test_a_fetch_begins_with_what_its_version_is_of(name: str) -> None:
    vectors = {placements.PARAMETERS: 8, placements.FROZEN: 4, placements.BUFFERS_FLOAT32: 4}
    share = placements.a_share(vectors, 16, ("velocity", "prediction"))
    named = placements.PARAMETERS.beside(name)

    parts = share.all_chunks([placements.BUFFERS_FLOAT32, placements.FROZEN, named])

    fetched = [part.vector for part in parts]
    assert fetched == [named, named, placements.FROZEN, placements.BUFFERS_FLOAT32]
