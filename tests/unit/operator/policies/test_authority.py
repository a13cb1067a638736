"""Jobs whose processes believe another authority than the operator signs by."""

from datetime import timedelta

from builders.operator_jobs import NOW, child, job
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import stored
from disttrain_operator.observed import parsing
from disttrain_operator.policies import authority
from disttrain_operator.policies.problem import BLOCKING, ProblemType

OURS, THEIRS = "a" * 64, "b" * 64


def test_a_job_whose_secret_names_another_authority_is_told_what_to_do() -> None:
    told = authority.problem(job(), THEIRS, OURS)
    assert told is not None
    assert told.type is ProblemType.AUTHORITY_REPLACED
    # What runs is looked after as ever.
    assert told.type not in BLOCKING
    assert "delete Secret digits-trust-01234567, and all processes" in told.message


def test_of_others_and_of_those_of_which_it_is_not_known_nothing_is_told() -> None:
    assert authority.problem(job(), OURS, OURS) is None
    assert authority.problem(job(), "", OURS) is None


def test_workloads_say_what_is_believed_and_the_job_does_where_its_secret_was_made_again() -> None:
    older, newer = child(Kind.StatefulSet), child(Kind.Job, authority=THEIRS)
    assert authority.believed(job(), []) == ""
    assert authority.believed(job(), [older]) == ""
    assert authority.believed(job(), [older, newer]) == THEIRS
    assert authority.believed(job({"authority": OURS}), [older, newer]) == OURS


def test_whether_the_secret_is_gone_is_looked_at_now_and_each_minute() -> None:
    assert authority.secret_due_at(None, NOW) == NOW
    assert authority.secret_due_at(NOW, NOW) == NOW + timedelta(minutes=1)


def test_the_authority_is_read_from_an_annotation() -> None:
    def read(value: object) -> tuple[str, str]:
        metadata = {"name": "digits", "annotations": {stored.AUTHORITY: value}}
        body = {"metadata": metadata}
        seen = parsing.child(Kind.ReplicaSet, body)
        return parsing.job(body, frozenset()).authority, seen.authority

    assert read(OURS) == (OURS, OURS)
    assert {read(value) for value in (7, OURS + "a", None)} == {("", "")}
