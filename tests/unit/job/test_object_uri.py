import pytest

from disttrain.job import object_uri


@pytest.mark.parametrize(
    ("text", "expected"),
    [("s3://b", True), ("local:///a", True), ("file:///a", False), ("/a", False), ("a/b", False)],
)
def test_files_are_no_places_in_an_object_store(text: str, *, expected: bool) -> None:
    assert object_uri.is_one(text) is expected
