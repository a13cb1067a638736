"""What the operator is held against makes what it should."""

import json
from pathlib import Path

from builders import frozen_script

FROZEN = Path(frozen_script.__file__).with_suffix(".json").read_text()


def test_the_script_makes_eleven_objects_that_the_job_owns() -> None:
    made = frozen_script.objects(FROZEN, "some-job", "0123456789abcdef")

    assert len({(each["path"], each["body"]["metadata"]["name"]) for each in made}) == 11
    assert "$" not in json.dumps(made)
    for each in made:
        (owner,) = each["body"]["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("DistTrainJob", "some-job")
        assert owner["uid"] == "0123456789abcdef"
        assert each["body"]["metadata"]["name"].startswith("some-job")
