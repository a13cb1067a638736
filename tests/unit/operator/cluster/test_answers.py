import json

import pytest

from disttrain.errors import DistTrainError
from disttrain_operator.cluster import answers
from disttrain_operator.errors import Conflict, Gone, Refused, Unavailable


@pytest.mark.parametrize(
    ("status", "words", "error"),
    [
        (422, 'Job.batch "x" is invalid: metadata.uid: Invalid value: "a": immutable', Conflict),
        (422, 'Job.batch "x" is invalid: spec.template: Invalid value', Refused),
        (409, "the object has been modified", Conflict),
        (504, "Timeout: Too large resource version: 900, current: 12", Gone),
        (504, "Timeout: request did not complete", Unavailable),
    ],
)
def test_codes_and_words_mean_errors(status: int, words: str, error: type[DistTrainError]) -> None:
    content = json.dumps({"message": words}).encode()

    with pytest.raises(error, match=f"{status} to PATCH /x"):
        answers.read(content, status, "PATCH /x")


def test_of_many_words_the_first_and_the_last_are_kept() -> None:
    said = 'Job.batch "x" is invalid: spec.template: ' + "value" * 1000 + ": field is immutable"

    with pytest.raises(Refused) as refusal:
        answers.read(json.dumps({"message": said}).encode(), 422, "PATCH /x")

    assert str(refusal.value).startswith('Job.batch "x" is invalid')
    assert "field is immutable" in str(refusal.value)
    assert len(str(refusal.value)) < 1100
