"""The tables of the Pod Security Standards; an end-to-end test asks the API server the same."""

from typing import Any

import pytest

from builders.pod_templates import BEYOND_BASELINE, BEYOND_RESTRICTED, WITHIN_RESTRICTED, context
from disttrain_operator.manifests.config import PodSecurity
from disttrain_operator.manifests.pod_security import violations


@pytest.mark.parametrize("template", BEYOND_BASELINE.values(), ids=BEYOND_BASELINE)
def test_what_is_beyond_baseline_is_beyond_restricted_and_within_privileged(
    template: dict[str, Any],
) -> None:
    assert len(violations(template, PodSecurity.BASELINE)) == 1
    assert violations(template, PodSecurity.RESTRICTED)
    assert not violations(template, PodSecurity.PRIVILEGED)


@pytest.mark.parametrize("template", BEYOND_RESTRICTED.values(), ids=BEYOND_RESTRICTED)
def test_what_is_beyond_restricted_is_within_baseline(template: dict[str, Any]) -> None:
    assert violations(template, PodSecurity.RESTRICTED)
    assert not violations(template, PodSecurity.BASELINE)


@pytest.mark.parametrize("template", WITHIN_RESTRICTED.values(), ids=WITHIN_RESTRICTED)
def test_what_is_within_restricted_is_within_all(template: dict[str, Any]) -> None:
    assert not violations(template, PodSecurity.RESTRICTED)


def test_a_violation_names_the_field() -> None:
    (told,) = violations(context(privileged=True), PodSecurity.BASELINE)
    assert told == "spec.containers[1].securityContext.privileged must not be true"
