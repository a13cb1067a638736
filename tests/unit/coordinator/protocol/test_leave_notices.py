"""What members that leave write down while there is no coordinator, wherever it lies."""

from pathlib import Path

import pytest

from builders.flaky_objects import Fault, FlakyObjects
from disttrain.checkpoint import names
from disttrain.checkpoint.blobs import FolderBlobs
from disttrain.checkpoint.errors import CheckpointError, Corrupt, StoreAway, StoreDenied
from disttrain.coordinator.protocol import leave_notices, payloads
from disttrain.coordinator.protocol.fields import MemberId, Position, Progress
from disttrain.coordinator.protocol.leave_notices import LeaveNotices
from disttrain.coordinator.protocol.messages import Heartbeat, Leave
from disttrain.coordinator.protocol.notices import Remove
from disttrain.transport.header import Role


class Away(FlakyObjects):
    """A store that answers nothing."""

    def sizes(self, folder: str) -> dict[str, int]:
        message = f"{folder}: no answer within 20 s"
        raise StoreAway(message)


def a_member(incarnation: int = 1) -> MemberId:
    return MemberId(role=Role.REPLICA, index=3, incarnation=incarnation)


def a_leave(incarnation: int = 1) -> Leave:
    progress = Progress(position=Position(lease=7, offset=4), samples=4)
    return Leave(member=a_member(incarnation), reason="SIGTERM", progress=progress)


@pytest.fixture(name="place", params=["folder", "objects"])
def _place(request: pytest.FixtureRequest, tmp_path: Path) -> LeaveNotices:
    if request.param == "folder":
        return leave_notices.in_folder(tmp_path)
    objects = FlakyObjects()
    return LeaveNotices(lambda: objects, 0.0)


def test_what_is_written_is_there_until_it_is_forgotten(place: LeaveNotices) -> None:
    assert place.read() == {}
    for incarnation in (1, 2):
        place.write(a_leave(incarnation))
    first, second = sorted(place.read())
    assert [place.read()[name] for name in (first, second)] == [a_leave(1), a_leave(2)]
    place.forget(first)
    place.forget(first)
    assert list(place.read()) == [second]


def test_who_is_removed_is_told_of_beside_who_leaves(place: LeaveNotices) -> None:
    place.write(a_leave())
    place.write(Remove(place="joiner-a1"))

    assert set(place.read().values()) == {a_leave(), Remove(place="joiner-a1")}


def test_who_leaves_twice_is_heard_once(place: LeaveNotices) -> None:
    place.write(a_leave())
    place.write(a_leave())
    assert list(place.read().values()) == [a_leave()]


@pytest.mark.parametrize(
    "content",
    [
        b"no leave notice",
        payloads.encode_request(Heartbeat(member=a_member())),
        b" " * (payloads.LIMIT_BYTES + 1),
    ],
)
def test_what_is_no_leave_notice_is_left_out_and_forgotten(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{names.FAREWELLS}/replica-9.i1.json"
    FolderBlobs(tmp_path).write(name, content)
    objects = FlakyObjects(there={name: content})
    for place in (leave_notices.in_folder(tmp_path), LeaveNotices(lambda: objects, 0.0)):
        place.write(a_leave())
        assert list(place.read().values()) == [a_leave()]
        assert len(caplog.records) == 1
        caplog.clear()
        assert list(place.read().values()) == [a_leave()]
        assert caplog.records == [], "it is told of once"
    assert FolderBlobs(tmp_path).sizes(names.FAREWELLS).keys() == objects.there.keys()
    assert name not in objects.there


@pytest.mark.parametrize("error", [Corrupt("it", "cannot be read"), StoreDenied("not this one")])
def test_one_that_cannot_be_read_hides_no_other(
    error: CheckpointError, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = FlakyObjects()
    place = LeaveNotices(lambda: objects, 0.0)
    for incarnation in (1, 2):
        place.write(a_leave(incarnation))
    unreadable = min(objects.there)
    read = objects.read

    def refuse_one(name: str, limit_bytes: int) -> bytes:
        if name == unreadable:
            raise error
        return read(name, limit_bytes)

    monkeypatch.setattr(objects, "read", refuse_one)
    assert list(place.read().values()) == [a_leave(2)]
    assert unreadable in objects.there


def test_a_store_that_takes_nothing_makes_it_a_death_without_a_word() -> None:
    objects = FlakyObjects(faults=[Fault.REFUSED])
    place = LeaveNotices(lambda: objects, 0.0)
    place.write(a_leave())
    assert place.read() == {}


def test_in_a_store_that_is_away_there_is_none_for_now() -> None:
    assert LeaveNotices(Away, 0.0).read() == {}
