"""Who a certificate says its holder is, and for whom that one may speak."""

import pytest

from disttrain.job import identity
from disttrain.job.identity import LOOPS, Identity, Speaker, mismatch, parse

POD = "9e2d6e3c-0d0e-4a52-8f0e-2a1f4d1f7f11"
REPLICA = Identity("uid", "replica", instance=f"{POD}.1f")
"""As in a cluster: the coordinator names it."""
PLACED = REPLICA._replace(place="digits-replica-x7k2p")
"""And only one pod is its place."""
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
        PLACED,
    ],
)
def test_an_identity_survives_its_uris(found: Identity) -> None:
    names = [("DNS", "a"), *(("URI", uri) for uri in ("mailto:x", *found.uris))]
    for order in (names, names[::-1]):
        assert identity.of_certificate({"subjectAltName": tuple(order)}) == found


def test_what_older_versions_read_stands_first_and_says_all_but_the_place() -> None:
    first, second = PLACED.uris
    assert first == f"disttrain://uid/replica/-/0/{POD}.1f"
    assert second == f"{first}/digits-replica-x7k2p"
    assert parse(first) == REPLICA
    assert REPLICA.uris == (first,)


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
        "disttrain://uid/shard/0/0/-/place/more",
        "disttrain://uid/shard/0/0/-/",
        "disttrain://uid/shard/0/0/-/Place",
        "disttrain://uid/shard/0/0/-/-",
        f"disttrain://uid/shard/0/0/-/{'a' * 254}",
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
        (PLACED, Speaker("replica", None, 0, PLACED.instance, PLACED.place)),
        (PLACED, Speaker("replica", 5, 0, PLACED.instance)),
        (REPLICA, Speaker("replica", None, 0, REPLICA.instance, "anywhere")),
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
        (PLACED, Speaker("replica", None, 0, PLACED.instance, "another-pod")),
        (PLACED, Speaker("replica", None, 0, PLACED.instance, "")),
        (PLACED, Speaker("replica", None, 0, "another-pod.1f", PLACED.place)),
    ],
)
def test_who_may_not_speak_is_told_both_names(holder: Identity, speaker: Speaker) -> None:
    assert mismatch(holder, speaker) == f"the certificate of {holder} does not speak for {speaker}"


def test_names_are_those_of_logs() -> None:
    assert str(SECOND) == "replica-1"
    assert str(Identity("uid", "replica", 3, 1)) == "replica-3-1"
    assert str(REPLICA) == f"replica of {POD}.1f"
    assert str(PLACED) == f"replica of {POD}.1f at digits-replica-x7k2p"
    assert str(Speaker("replica", None, 0, "a.1", "b")) == "replica of a.1 at b"
    assert identity.pod_of(f"{REPLICA.instance}.2b") == POD
