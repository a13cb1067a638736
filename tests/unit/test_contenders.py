"""What the operator is held against makes the same pods, and owned objects."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builders import frozen_script, many_jobs, rivals
from builders.rivals import JOBSET, TFJOB, Rival

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


@pytest.mark.parametrize("rival", [JOBSET, TFJOB], ids=lambda rival: rival.name)
def test_a_rival_gets_the_operators_pods(rival: Rival) -> None:
    templates = list(found_templates(rival.job("some-job")))

    assert sum(number for number, _ in templates) == many_jobs.PODS
    assert Counter(seen(template) for _, template in templates) == Counter(
        seen(template) for _, template in rivals.pod_templates("some-job").values()
    )


def found_templates(found: Any) -> Any:
    """The pod templates in an object, with the number of their pods."""
    if isinstance(found, dict):
        number = found.get("parallelism", found.get("replicas"))
        if number is not None and "containers" in found["template"]["spec"]:
            yield number, found["template"]
            return
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from found_templates(each)


def seen(template: dict[str, Any]) -> str:
    """What of a template every contender has to have."""
    (container,) = template["spec"]["containers"]
    kept = {key: value for key, value in container.items() if key != "name"}
    return json.dumps([kept, template["spec"]["volumes"], template["metadata"]], sort_keys=True)
