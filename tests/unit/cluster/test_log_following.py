"""Logs that are followed: through restarts and broken connections, to the end of the job."""

import threading
from collections.abc import Callable, Iterator

import pytest

from builders.api_answers import NAMESPACE, ApiInMemory, a_condition, a_job, a_pod, with_job
from disttrain.cluster import logs
from disttrain.cluster.errors import NotFound, Unreachable, WrongInput
from disttrain.cluster.interface import Object
from disttrain.cluster.jobs import Jobs
from disttrain.cluster.logs import LogOptions
from disttrain.cluster.resources import JOBS, PODS

LOG = PODS.path(NAMESPACE, "digits-shard-0", "log")
JOB_OVER = a_job(conditions=[a_condition("Complete")])


def an_incarnation(number: int, **state: Object) -> Object:
    """A shard's pod whose container runs, or is in another state."""
    own = {"containerID": f"incarnation-{number}", "state": state or {"running": {}}}
    return a_pod("digits-shard-0", "shard", **own)


def ended(number: int) -> Object:
    return an_incarnation(number, terminated={"exitCode": 0})


def then(api: ApiInMemory, becomes: Object, *lines: str) -> Iterator[str]:
    """A log that ends, and what its pod is by then."""
    yield from lines
    api.put(PODS, becomes)


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.01)


def broken_after(*lines: str) -> Iterator[str]:
    yield from lines
    message = "the connection broke"
    raise Unreachable(message)


def lines_of(api: ApiInMemory, *, until: Callable[[list[str]], None]) -> list[str]:
    jobs, seen = Jobs(api, NAMESPACE), list[str]()
    for each in logs.follow(jobs, a_job(), LogOptions(roles=("shard",))):
        seen.append(each.text)
        until(seen)
    return seen


def test_a_followed_log_survives_a_broken_connection_and_a_restart() -> None:
    api = with_job(a_job(), an_incarnation(1), a_pod("digits-coordinator-0-x", "coordinator"))
    first, second, third = (f"2026-01-01T00:00:0{n}Z line {n}" for n in (1, 2, 3))
    again = "2026-01-01T00:00:04Z again"
    api.streams[LOG] = [
        broken_after(first, second),
        then(api, an_incarnation(2), second, third),
        then(api, ended(2), again),
    ]

    def end(seen: list[str]) -> None:
        if seen[-1] == "again":
            api.put(JOBS, JOB_OVER)

    assert lines_of(api, until=end) == ["line 1", "line 2", "line 3", "again"]
    asked = [dict(each.query) for each in api.asked if each.path == LOG]
    assert asked[1]["sinceTime"] == "2026-01-01T00:00:02Z"
    assert "sinceTime" not in asked[2], "another incarnation of the container has another log"
    assert len(asked) == 3


def test_a_log_that_ends_while_its_container_runs_is_asked_for_again() -> None:
    api = with_job(a_job(), an_incarnation(1))
    first, second = (f"2026-01-01T00:00:0{n}Z line {n}" for n in (1, 2))
    api.streams[LOG] = [[first], then(api, ended(1), first, second)]

    def end(seen: list[str]) -> None:
        if seen[-1] == "line 2":
            api.put(JOBS, JOB_OVER)

    assert lines_of(api, until=end) == ["line 1", "line 2"]
    asked = [dict(each.query) for each in api.asked if each.path == LOG]
    assert [each.get("sinceTime") for each in asked] == [None, "2026-01-01T00:00:01Z"]


def test_a_container_that_took_the_place_of_a_broken_one_is_followed_once() -> None:
    api = with_job(a_job(), an_incarnation(1))
    first, second = (f"2026-01-01T00:00:0{n}Z line {n}" for n in (1, 2))

    def replaced() -> Iterator[str]:
        yield first
        api.put(PODS, an_incarnation(2))
        yield from broken_after()

    def end(seen: list[str]) -> None:
        if seen[-1] == "line 2":
            api.put(JOBS, JOB_OVER)

    api.streams[LOG] = [replaced(), then(api, ended(2), second)]
    assert lines_of(api, until=end) == ["line 1", "line 2"]
    assert len([each for each in api.asked if each.path == LOG]) == 2


def test_of_an_incarnation_that_begins_later_the_whole_log_is_shown() -> None:
    api = with_job(a_job(), an_incarnation(1))
    api.streams[LOG] = [
        then(api, an_incarnation(2), "2026-01-01T00:00:01Z one"),
        then(api, ended(2), "2026-01-01T00:00:02Z two"),
    ]
    jobs = Jobs(api, NAMESPACE)
    for each in logs.follow(jobs, a_job(), LogOptions(tail=0)):
        if each.text == "two":
            api.put(JOBS, JOB_OVER)
    tails = [each.query.get("tailLines") for each in api.asked if each.path == LOG]
    assert tails == ["0", None]


def test_following_a_job_that_is_over_says_what_is_left_and_ends() -> None:
    api = with_job(JOB_OVER, ended(1))
    api.streams[LOG] = [["2026-01-01T00:00:01Z last"]]
    assert lines_of(api, until=lambda _seen: None) == ["last"]
    assert len([each for each in api.asked if each.path == LOG]) == 1


def test_a_log_that_a_lost_node_keeps_open_holds_up_nobody() -> None:
    api = with_job(a_job(), an_incarnation(1))
    closed = threading.Event()

    def never_ends() -> Iterator[str]:
        yield "2026-01-01T00:00:01Z last"
        closed.wait(60)

    def lose(_seen: list[str]) -> None:
        api.put(JOBS, JOB_OVER)
        del api.objects[PODS.path(NAMESPACE, "digits-shard-0")]

    api.streams[LOG] = [never_ends()]
    assert lines_of(api, until=lose) == ["last"]
    closed.set()


def test_more_logs_than_asked_for_are_not_opened() -> None:
    api = with_job(
        a_job(), an_incarnation(1), a_pod("digits-shard-1", "shard", containerID="other")
    )
    with pytest.raises(WrongInput, match=r"2 logs would be followed .* --max-log-requests"):
        next(logs.follow(Jobs(api, NAMESPACE), a_job(), LogOptions(most_open=1)))
    assert not [each for each in api.asked if each.path == LOG]


def test_a_pod_that_comes_later_is_followed_when_another_log_has_ended() -> None:
    api = with_job(a_job(), an_incarnation(1))
    second = a_pod("digits-shard-1", "shard", containerID="other")
    api.streams[LOG] = [then(api, ended(1), "2026-01-01T00:00:01Z one")]
    api.streams[PODS.path(NAMESPACE, "digits-shard-1", "log")] = [["2026-01-01T00:00:02Z two"]]
    seen = []
    for each in logs.follow(Jobs(api, NAMESPACE), a_job(), LogOptions(most_open=1)):
        seen.append(each.text)
        api.put(PODS, second)
        if each.text == "two":
            api.put(JOBS, JOB_OVER)
    assert seen == ["one", "two"]


def test_following_a_pod_that_goes_with_the_end_of_its_job_ends_well() -> None:
    api = with_job(a_job(), an_incarnation(1))
    api.streams[LOG] = [["2026-01-01T00:00:01Z last"]]
    seen = []
    wanted = LogOptions(pod="digits-shard-0")
    for each in logs.follow(Jobs(api, NAMESPACE), a_job(), wanted):
        seen.append(each.text)
        del api.objects[PODS.path(NAMESPACE, "digits-shard-0")]
        api.put(JOBS, JOB_OVER)
    assert seen == ["last"]


def test_logs_of_a_pod_of_another_job_are_refused() -> None:
    jobs = Jobs(with_job(a_job(), an_incarnation(1)), NAMESPACE)
    with pytest.raises(NotFound, match="has no pod other; its pods: digits-shard-0"):
        logs.chosen(jobs, a_job(), LogOptions(pod="other"))


def test_the_tail_of_a_log_is_asked_for_once() -> None:
    api = with_job(a_job(), an_incarnation(1))
    api.texts[LOG] = "2026-01-01T00:00:01Z one\n"
    (line,) = logs.read(Jobs(api, NAMESPACE), an_incarnation(1), LogOptions(tail=5, previous=True))
    assert line.text == "one"
    query = dict(api.asked[-1].query)
    assert (query["tailLines"], query["previous"]) == ("5", "true")
