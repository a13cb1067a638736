"""Where processes find their files in a pod."""

import pytest

from disttrain.job import pod_layout
from disttrain.job.names import Role


def test_places_that_documents_promise() -> None:
    assert str(pod_layout.LAUNCH_FILE) == "/etc/disttrain/launch/job.json"
    assert str(pod_layout.run_folder("digits", "1-2")) == "/checkpoints/digits-1-2"


@pytest.mark.parametrize("role", Role)
def test_each_role_has_credentials_of_its_own(role: Role) -> None:
    assert pod_layout.credentials_key(role) == f"{role}.json"
    assert str(pod_layout.credentials_file(role)) == f"/etc/disttrain/launch/{role}.json"


def test_jobs_of_the_same_name_have_folders_of_their_own() -> None:
    assert pod_layout.run_folder("digits", "1") != pod_layout.run_folder("digits", "2")
