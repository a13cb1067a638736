import json
import time
from collections.abc import Callable, Iterator

import pytest

from builders.api_answers import NAMESPACE, ApiInMemory, a_pod
from disttrain.cluster import informer
from disttrain.cluster.errors import Forbidden, Unreachable
from disttrain.cluster.informer import Informer
from disttrain.cluster.interface import Object, Verb
from disttrain.cluster.resources import PODS

PATH = PODS.path(NAMESPACE)
LIMIT_SECONDS = 20


@pytest.fixture(autouse=True)
def without_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer, "PAUSE_SECONDS", 0.01)


def event(kind: str, pod: Object) -> str:
    return json.dumps({"type": kind, "object": pod})


def names(shown: Informer) -> list[str]:
    return [each["metadata"]["name"] for each in shown.objects()]


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.01)


def watched(api: ApiInMemory) -> Informer:
    return Informer(api, PODS, NAMESPACE, "app=x")


def test_pods_are_listed_once_and_then_watched() -> None:
    api = ApiInMemory()
    api.put(PODS, a_pod("first", "shard"))
    gate: list[str] = []

    def stream() -> Iterator[str]:
        yield event("ADDED", a_pod("second", "shard"))
        yield event("DELETED", a_pod("first", "shard"))
        wait_until(lambda: bool(gate))

    api.streams[PATH] = [stream()]
    with watched(api) as shown:
        wait_until(lambda: names(shown) == ["second"])
        asked = [each.verb for each in api.asked]
        gate.append("open")

    assert asked == [Verb.LIST, Verb.WATCH]


def test_after_a_watch_that_broke_they_are_listed_again() -> None:
    api = ApiInMemory()

    def broken() -> Iterator[str]:
        api.put(PODS, a_pod("missed", "shard"))
        yield from ()
        message = "the connection broke"
        raise Unreachable(message)

    api.streams[PATH] = [broken()]
    with watched(api) as shown:
        wait_until(lambda: names(shown) == ["missed"])


def test_a_version_that_is_too_old_is_no_pod() -> None:
    api = ApiInMemory()
    api.put(PODS, a_pod("first", "shard"))
    gone = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410}})
    api.streams[PATH] = [[gone]]
    with watched(api) as shown:
        wait_until(lambda: len([each for each in api.asked if each.verb is Verb.LIST]) > 1)
        assert names(shown) == ["first"]


def test_whoever_may_not_see_pods_sees_none_and_goes_on() -> None:
    api = ApiInMemory()
    api.refusals[PATH] = Forbidden("jane cannot list pods")
    with watched(api) as shown:
        wait_until(lambda: len(api.asked) > 1)
        assert names(shown) == []
