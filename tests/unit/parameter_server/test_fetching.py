"""How a fetch asks for chunks: what one request names lies side by side in its memory."""

from builders import placements
from disttrain.parameter_server import fetching
from disttrain.state.fragments import WHOLE, Fragment
from disttrain.state.share import Part, Share


def asked(fragment: Fragment) -> list[list[Part]]:
    placement = placements.a_placement({placements.PARAMETERS: 1024}, 1)
    return fetching._runs(Share(placement, 0, 256).all_chunks([placements.PARAMETERS], fragment))


def test_neighbours_of_the_whole_vector_are_asked_for_together() -> None:
    assert [[part.first for part in request] for request in asked(WHOLE)] == [
        [128 * number, 128 * number + 64] for number in range(8)
    ]


def test_stripes_of_a_fragment_are_asked_for_apart() -> None:
    """Their chunks have numbers that follow one another, and other elements lie between them."""
    assert [[part.first for part in request] for request in asked(Fragment(1, 4))] == [
        [128, 192],
        [640, 704],
    ]


def test_a_chunk_as_long_as_a_stripe_is_asked_for_alone() -> None:
    placement = placements.a_placement({placements.PARAMETERS: 1024}, 1)
    chunks = Share(placement, 0, 512).all_chunks([placements.PARAMETERS], Fragment(1, 4))
    assert [part.chunk for part in chunks] == [0, 1]
    assert len(fetching._runs(chunks)) == 2
