"""A run has room again when something was saved, not when its disk looks so."""

from disttrain.launcher.room import Room


def test_room_is_there_again_once_a_checkpoint_was_saved() -> None:
    room = Room()
    room.look(is_short=False, checkpoint=3)
    assert not room.is_lacking
    room.look(is_short=True, checkpoint=None)
    assert room.is_lacking
    # What did not fit was removed.
    room.look(is_short=False, checkpoint=None)
    room.look(is_short=False, checkpoint=3)
    assert room.is_lacking
    room.look(is_short=False, checkpoint=5)
    assert not room.is_lacking


def test_what_was_saved_before_the_disk_was_full_says_nothing() -> None:
    room = Room()
    room.look(is_short=True, checkpoint=4)
    room.look(is_short=False, checkpoint=4)
    assert room.is_lacking
    # Saved before, told since.
    room.look(is_short=False, checkpoint=5)
    room.look(is_short=False, checkpoint=5)
    assert room.is_lacking
    room.look(is_short=False, checkpoint=6)
    assert not room.is_lacking


def test_a_disk_that_is_full_before_anything_is_told_has_room_once_two_are_saved() -> None:
    room = Room()
    room.look(is_short=True, checkpoint=None)
    room.look(is_short=False, checkpoint=0)
    assert room.is_lacking
    room.look(is_short=False, checkpoint=1)
    assert not room.is_lacking
