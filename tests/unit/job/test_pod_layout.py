"""Where processes find their files in a pod."""

from disttrain.job import pod_layout


def test_places_that_documents_promise() -> None:
    assert str(pod_layout.LAUNCH_FILE) == "/etc/disttrain/launch/job.json"
    assert str(pod_layout.TRUST_FILE) == "/etc/disttrain/launch/trust.json"
    assert str(pod_layout.TOKEN_FILE) == "/var/run/secrets/disttrain/token"
    assert str(pod_layout.run_folder("digits", "1-2")) == "/checkpoints/digits-1-2"


def test_jobs_of_the_same_name_have_folders_of_their_own() -> None:
    assert pod_layout.run_folder("digits", "1") != pod_layout.run_folder("digits", "2")
