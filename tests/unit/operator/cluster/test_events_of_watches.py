import json

import pytest

from disttrain_operator.cluster import answers
from disttrain_operator.cluster.answers import EventType, Lines
from disttrain_operator.errors import Gone, Unavailable


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_lines_are_whole_however_they_come(size: int) -> None:
    content = b"first\nsecond\n\nthe third is longer\nnot whole"
    lines, found = Lines(), []
    for begin in range(0, len(content), size):
        found += lines.add(content[begin : begin + size])

    assert found == [b"first", b"second", b"the third is longer"]
    assert lines.add(b"\n") == [b"not whole"]


def test_an_event_tells_from_where_to_go_on() -> None:
    body = {"metadata": {"name": "x", "resourceVersion": "12"}}

    event = answers.event(json.dumps({"type": "BOOKMARK", "object": body}).encode())

    assert event.type is EventType.BOOKMARK
    assert event.version == "12"


@pytest.mark.parametrize("name", ["plain", "}]", '}],"uid":"other', '}]},"spec":{"x":"'])
def test_an_event_leaves_out_who_wrote_which_field_whatever_a_user_calls_it(name: str) -> None:
    wrote = {"manager": "kubelet", "fieldsV1": {"f:env": {f"k:{json.dumps({'name': name})}": {}}}}
    metadata = {"uid": "1", "resourceVersion": "12", "managedFields": [wrote, wrote]}
    body = {"metadata": metadata, "spec": {"env": [{"name": name}]}}

    event = answers.event(
        json.dumps({"type": "ADDED", "object": body}, separators=(",", ":")).encode()
    )

    assert event.body["spec"] == body["spec"]
    assert event.body["metadata"]["uid"] == "1"
    if name == "plain":
        assert event.body["metadata"] == {"uid": "1", "resourceVersion": "12"}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ({"type": "ERROR", "object": {"code": 410, "message": "too old"}}, Gone),
        ({"type": "ERROR", "object": {"code": 500, "message": "no"}}, Unavailable),
        ({"type": "ERROR", "object": None}, Unavailable),
        ({"type": "OTHER", "object": {}}, Unavailable),
        ({"type": "ADDED", "object": {"metadata": {"name": "x"}}}, Unavailable),
        ({"type": "BOOKMARK", "object": {}}, Unavailable),
        ({"type": "ADDED", "object": {"metadata": None}}, Unavailable),
        ([], Unavailable),
    ],
)
def test_what_ends_a_watch_is_an_error(line: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        answers.event(json.dumps(line).encode())


def test_bytes_that_are_no_json_are_an_error() -> None:
    with pytest.raises(Unavailable, match="no event"):
        answers.event(b'{"type": "ADD')
