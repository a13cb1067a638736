"""Who a certificate says its holder is, and for whom that one may speak."""

import pytest

from disttrain.job import identity
from disttrain.job.identity import LOOPS, Identity, Speaker, mismatch, parse

POD = "9e2d6e3c-0d0e-4a52-8f0e-2a1f4d1f7f11"
REPLICA = Identity("uid", "replica", instance=f"{POD}.1f")
"""As in a cluster: the coordinator names it."""
SECOND = Identity("uid", "replica", 1)
"""As on one machine: all incarnations of one process."""


@pytest.mark.parametrize(
    "found",
    [
        Identity("uid", "coordinator", 0, instance=f"{POD}.a"),
        Identity("uid", "shard", 12, instance=POD),
        Identity("uid", "replica", 3, 1),
        Identity("uid", "replica", instance=LOOPS),
        Identity("uid", "launcher"),
        REPLICA,
    ],
)
def test_an_identity_survives_its_uri(found: Identity) -> None:
    assert parse(found.uri) == found


def test_certificates_of_older_versions_name_the_role_alone() -> None:
    found = parse("disttrain://uid/replica")
    assert found == Identity("uid", "replica")
    assert mismatch(found, Speaker("replica", 7, 0, "any")) == ""


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "x",
        "disttrain://",
        "disttrain://uid",
        "disttrain:///shard",
        "disttrain://uid/shard/0",
        "disttrain://uid/shard/0/0",
        "disttrain://uid/shard/0/0/-/more",
        "disttrain://uid/shard/-1/0/-",
        "disttrain://uid/shard/0/-/-",
        "disttrain://uid/shard/x/0/-",
        "disttrain://uid/shard/\u0663/0/-",
        "disttrain://uid/shard/0/0/",
        "disttrain://uid/shard/0/0/.",
        "disttrain://uid/shard/0/0/a b",
        f"disttrain://uid/shard/0/0/{'a' * 129}",
    ],
)
def test_what_names_no_process_is_none(uri: str) -> None:
    assert parse(uri) is None


@pytest.mark.parametrize(
    ("holder", "speaker"),
    [
        (SECOND, Speaker("replica", 1)),
        (SECOND, Speaker("replica", 1, 0, "whatever incarnation")),
        (REPLICA, Speaker("replica", None, 0, REPLICA.instance)),
        (REPLICA, Speaker("replica", 5, 0, f"{REPLICA.instance}.2b")),
        # Of an incarnation that is over nothing is known, and nothing is done in its name.
        (REPLICA, Speaker("replica", 5)),
        (Identity("uid", "replica", 3, 1), Speaker("replica", 3, 1)),
        (Identity("uid", "replica", instance=LOOPS), Speaker("replica", 9, 0, "loop.4f")),
    ],
)
def test_who_may_speak(holder: Identity, speaker: Speaker) -> None:
    assert mismatch(holder, speaker) == ""


@pytest.mark.parametrize(
    ("holder", "speaker"),
    [
        (SECOND, Speaker("replica", 0)),
        (SECOND, Speaker("replica", None)),
        (SECOND, Speaker("shard", 1)),
        (SECOND, Speaker("replica", 1, 1)),
        (REPLICA, Speaker("replica", 5, 0, "another-pod.1f")),
        (REPLICA, Speaker("replica", 5, 0, f"{POD}.1f0")),
        (REPLICA, Speaker("replica", 5, 0, POD)),
        (REPLICA, Speaker("replica", 5, 0, "")),
        (Identity("uid", "replica", 3, 1), Speaker("replica", 3, 0)),
        (Identity("uid", "replica", instance=LOOPS), Speaker("replica", 0, 0, "4f")),
    ],
)
def test_who_may_not_speak_is_told_both_names(holder: Identity, speaker: Speaker) -> None:
    assert mismatch(holder, speaker) == f"the certificate of {holder} does not speak for {speaker}"


def test_names_are_those_of_logs() -> None:
    assert str(SECOND) == "replica-1"
    assert str(Identity("uid", "replica", 3, 1)) == "replica-3-1"
    assert str(REPLICA) == f"replica of {POD}.1f"
    assert identity.pod_of(f"{REPLICA.instance}.2b") == POD
