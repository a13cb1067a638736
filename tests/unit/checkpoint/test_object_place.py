import pytest

from disttrain.checkpoint import names
from disttrain.checkpoint.errors import NoCheckpoint
from disttrain.checkpoint.names import ObjectPlace


@pytest.mark.parametrize(
    ("text", "uri", "number"),
    [
        ("s3://b/jobs/digits-1", "s3://b/jobs/digits-1", None),
        ("s3://b/jobs/digits-1/", "s3://b/jobs/digits-1", None),
        ("s3://b/jobs/digits-1/checkpoints/00000003.json", "s3://b/jobs/digits-1", 3),
        ("s3://b/checkpoints/digits-1", "s3://b/checkpoints/digits-1", None),
        ("s3://b/checkpoints/d/checkpoints/123456789.json", "s3://b/checkpoints/d", 123456789),
        ("s3://b/d/checkpoints/3.json", "s3://b/d/checkpoints/3.json", None),
        ("s3://b/d/data/00000003.json", "s3://b/d/data/00000003.json", None),
    ],
)
def test_a_text_names_a_job_or_one_of_its_checkpoints(
    text: str, uri: str, number: int | None
) -> None:
    assert names.place_of(text) == ObjectPlace(uri, number)


@pytest.mark.parametrize("place", ["", "/job/checkpoints/1", "s3://b/d/checkpoints/00000003.text"])
def test_no_checkpoint_is_written_at_another_place(place: str) -> None:
    with pytest.raises(NoCheckpoint, match=f"no checkpoint is written at {place}"):
        names.staged_number(place)
