"""What the operator relies on of an API server: asked of the one in memory and of a real one.

Each check is a function of a client and of an empty namespace.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import pytest

from disttrain.errors import DistTrainError
from disttrain_operator.cluster.client import Client, Query
from disttrain_operator.errors import Conflict, NotFound, Refused
from disttrain_operator.kinds import Kind

Object = dict[str, Any]
Check = Callable[[Client, str], Awaitable[None]]

_LABELS: Final = {"app": "contract"}
_EVENTS_SECONDS: Final = 30


def _body(kind: Kind, namespace: str, name: str = "one", **content: Any) -> Object:
    header = {"apiVersion": kind.value.api_version, "kind": kind.name}
    metadata = {"namespace": namespace, "name": name, "labels": dict(_LABELS)}
    return {**header, "metadata": metadata, **content}


def secret(namespace: str, name: str = "one", **data: str) -> Object:
    """A kind without generation; its data are in base64."""
    return _body(Kind.Secret, namespace, name, data=data)


def _pods(image: str = "nothing:1", **changed: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": image}], **changed}
    return {"metadata": {"labels": dict(_LABELS)}, "spec": spec}


def stateful_set(namespace: str, **changed: Any) -> Object:
    """A kind with generation and status, of which most must not change."""
    spec = {
        "replicas": 0,
        "serviceName": "one",
        "selector": {"matchLabels": dict(_LABELS)},
        "template": _pods(),
        **changed,
    }
    return _body(Kind.StatefulSet, namespace, spec=spec)


def job(namespace: str, template: Object) -> Object:
    """A kind whose template must not change."""
    return _body(Kind.Job, namespace, spec={"suspend": True, "template": template})


async def _is_refused(call: Awaitable[Any], error: type[DistTrainError], *words: str) -> None:
    with pytest.raises(error) as refusal:
        await call
    missing = [word for word in words if word not in str(refusal.value)]
    assert not missing, f"{missing} not in: {refusal.value}"


async def created_with_a_uid_a_version_and_a_first_generation(client: Client, here: str) -> None:
    made = (await client.create(Kind.StatefulSet, stateful_set(here)))["metadata"]
    assert made["uid"]
    assert int(made["resourceVersion"]) > 0
    assert made["generation"] == 1
    assert made["creationTimestamp"]
    assert "generation" not in (await client.create(Kind.Secret, secret(here)))["metadata"]


async def a_name_is_taken_once(client: Client, here: str) -> None:
    await client.create(Kind.Secret, secret(here, a="MQ=="))
    await _is_refused(client.create(Kind.Secret, secret(here, a="Mg==")), Conflict)
    assert (await client.get(Kind.Secret, here, "one"))["data"] == {"a": "MQ=="}


async def what_is_not_there_is_not_found(client: Client, here: str) -> None:
    await _is_refused(client.get(Kind.Secret, here, "none"), NotFound)
    await _is_refused(client.merge(Kind.Secret, here, "none", {"data": {}}), NotFound)
    await _is_refused(client.delete(Kind.Secret, here, "none", "uid"), NotFound)


async def a_dry_run_refuses_and_keeps_nothing(client: Client, here: str) -> None:
    await client.create(Kind.Secret, secret(here), dry_run=True)
    await _is_refused(client.get(Kind.Secret, here, "one"), NotFound)
    wrong = stateful_set(here, selector={"matchLabels": {"app": "other"}})
    await _is_refused(client.create(Kind.StatefulSet, wrong, dry_run=True), Refused)


async def what_cannot_be_is_refused(client: Client, here: str) -> None:
    named = secret(here, name="Upper_Case")
    await _is_refused(client.create(Kind.Secret, named), Refused, "metadata.name")
    unknown = stateful_set(here, replicaz=3)
    await _is_refused(client.create(Kind.StatefulSet, unknown), Refused, "replicaz")
    elsewhere = stateful_set(here, selector={"matchLabels": {"app": "other"}})
    await _is_refused(client.create(Kind.StatefulSet, elsewhere), Refused, "selector")


async def a_null_is_as_if_it_were_not_given(client: Client, here: str) -> None:
    body = stateful_set(here, minReadySeconds=None, template=_pods(nodeSelector=None))
    await client.create(Kind.StatefulSet, body)
    found = (await client.get(Kind.StatefulSet, here, "one"))["spec"]
    assert "minReadySeconds" not in found
    assert "nodeSelector" not in found["template"]["spec"]


async def a_merge_changes_what_it_names_and_a_null_takes_away(client: Client, here: str) -> None:
    await client.create(Kind.Secret, secret(here, a="MQ==", b="Mg=="))
    changed = await client.merge(Kind.Secret, here, "one", {"data": {"a": None, "c": "Mw=="}})
    assert changed["data"] == {"b": "Mg==", "c": "Mw=="}
    assert (await client.get(Kind.Secret, here, "one"))["data"] == {"b": "Mg==", "c": "Mw=="}


async def another_spec_is_another_generation(client: Client, here: str) -> None:
    await client.create(Kind.StatefulSet, stateful_set(here))
    scaled = await client.merge(Kind.StatefulSet, here, "one", {"spec": {"replicas": 1}})
    assert scaled["metadata"]["generation"] == 2
    labels = {"metadata": {"labels": {"more": "yes"}}}
    labelled = await client.merge(Kind.StatefulSet, here, "one", labels)
    assert labelled["metadata"]["generation"] == 2
    before = int(scaled["metadata"]["resourceVersion"])
    assert int(labelled["metadata"]["resourceVersion"]) > before


async def a_merge_that_changes_nothing_is_no_other_version(client: Client, here: str) -> None:
    made = await client.create(Kind.Secret, secret(here, a="MQ=="))
    same = await client.merge(Kind.Secret, here, "one", {"data": {"a": "MQ=="}})
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def a_change_may_name_the_object_and_the_version(client: Client, here: str) -> None:
    made = (await client.create(Kind.Secret, secret(here, a="MQ==")))["metadata"]
    for wrong in ({"uid": "another"}, {"resourceVersion": "1"}):
        patch = {"metadata": wrong, "data": {"a": "Mg=="}}
        await _is_refused(client.merge(Kind.Secret, here, "one", patch), Conflict)
    right = {name: made[name] for name in ("uid", "resourceVersion")}
    patch = {"metadata": right, "data": {"a": "Mg=="}}
    assert (await client.merge(Kind.Secret, here, "one", patch))["data"] == {"a": "Mg=="}
    await _is_refused(client.merge(Kind.Secret, here, "one", patch), Conflict)


async def a_deletion_names_the_object_and_may_name_the_version(client: Client, here: str) -> None:
    made = (await client.create(Kind.Secret, secret(here, a="MQ==")))["metadata"]
    uid, version = made["uid"], int(made["resourceVersion"])
    await _is_refused(client.delete(Kind.Secret, here, "one", "another"), Conflict)
    await client.merge(Kind.Secret, here, "one", {"data": {"a": "Mg=="}})
    old = client.delete(Kind.Secret, here, "one", uid, version=version)
    await _is_refused(old, Conflict)
    await client.delete(Kind.Secret, here, "one", uid)
    await _is_refused(client.get(Kind.Secret, here, "one"), NotFound)


async def what_an_apply_no_longer_names_is_taken_away(client: Client, here: str) -> None:
    await client.apply(Kind.Secret, secret(here, a="MQ==", b="Mg=="))
    await client.apply(Kind.Secret, secret(here, a="Mw=="))
    assert (await client.get(Kind.Secret, here, "one"))["data"] == {"a": "Mw=="}


async def what_others_wrote_stays_whatever_is_applied(client: Client, here: str) -> None:
    await client.create(Kind.Secret, secret(here, made="MQ=="))
    await client.apply(Kind.Secret, secret(here, applied="MQ=="))
    await client.merge(Kind.Secret, here, "one", {"data": {"merged": "MQ=="}})
    await client.apply(Kind.Secret, secret(here))
    # What was created or merged is owned as an update, apart from what is applied.
    assert (await client.get(Kind.Secret, here, "one"))["data"] == {
        "made": "MQ==",
        "merged": "MQ==",
    }


async def an_apply_takes_over_and_makes_what_is_not_there(client: Client, here: str) -> None:
    await client.apply(Kind.Secret, secret(here, a="MQ=="))
    await client.merge(Kind.Secret, here, "one", {"data": {"a": "Mg=="}})
    await client.apply(Kind.Secret, secret(here, a="Mw=="))
    assert (await client.get(Kind.Secret, here, "one"))["data"] == {"a": "Mw=="}


async def an_apply_that_names_another_object_is_refused(client: Client, here: str) -> None:
    body = secret(here, a="MQ==")
    other = {**body, "metadata": {**body["metadata"], "uid": "another"}}
    await _is_refused(client.apply(Kind.Secret, other), Conflict)
    await client.create(Kind.Secret, body)
    await _is_refused(client.apply(Kind.Secret, other), Conflict)


async def the_template_of_a_job_must_not_change(client: Client, here: str) -> None:
    first = _pods(restartPolicy="Never")
    second = _pods(image="nothing:2", restartPolicy="Never")
    await client.create(Kind.Job, job(here, first))
    patch = {"spec": {"template": second}}
    await _is_refused(client.merge(Kind.Job, here, "one", patch), Refused, "immutable")
    await _is_refused(client.apply(Kind.Job, job(here, second)), Refused, "immutable")
    resumed = await client.merge(Kind.Job, here, "one", {"spec": {"suspend": False}})
    assert resumed["metadata"]["generation"] == 2


async def of_a_stateful_set_only_some_may_change(client: Client, here: str) -> None:
    await client.create(Kind.StatefulSet, stateful_set(here))
    patch = {"spec": {"serviceName": "other"}}
    await _is_refused(client.merge(Kind.StatefulSet, here, "one", patch), Refused, "orbidden")
    await client.apply(Kind.StatefulSet, stateful_set(here, template=_pods(image="nothing:2")))
    found = (await client.get(Kind.StatefulSet, here, "one"))["spec"]["template"]["spec"]
    assert found["containers"][0]["image"] == "nothing:2"


async def what_is_made_immutable_stays_so(client: Client, here: str) -> None:
    await client.create(Kind.Secret, {**secret(here, a="MQ=="), "immutable": True})
    change = client.merge(Kind.Secret, here, "one", {"data": {"a": "Mg=="}})
    await _is_refused(change, Refused, "immutable")


async def a_list_is_of_what_is_selected(client: Client, here: str) -> None:
    await client.create(Kind.Secret, secret(here))
    other = secret(here, name="two")
    other["metadata"]["labels"] = {"app": "other"}
    await client.create(Kind.Secret, other)
    found = await _listed(client, Query(kind=Kind.Secret, namespace=here, labels="app=contract"))
    assert [each["metadata"]["name"] for each in found] == ["one"]
    named = Query(kind=Kind.Secret, namespace=here, fields="metadata.name=two")
    assert [each["metadata"]["name"] for each in await _listed(client, named)] == ["two"]


async def events_are_listed_by_what_they_are_about(client: Client, here: str) -> None:
    for name, uid, reason in (("a", "1", "Made"), ("b", "2", "Made"), ("c", "2", "Gone")):
        metadata = {"namespace": here, "name": name}
        about = {"namespace": here, "kind": "Secret", "name": name, "uid": uid}
        header = {"apiVersion": "v1", "kind": "Event", "metadata": metadata}
        await client.create(Kind.Event, {**header, "involvedObject": about, "reason": reason})
    asked = Query(kind=Kind.Event, namespace=here, fields="involvedObject.uid=2,reason=Gone")
    assert [each["metadata"]["name"] for each in await _listed(client, asked)] == ["c"]


async def _listed(client: Client, query: Query) -> list[Object]:
    return [item async for page in client.pages(query) for item in page.items]


async def a_watch_tells_what_came_after_a_list_in_its_order(client: Client, here: str) -> None:
    query = Query(kind=Kind.Secret, namespace=here, labels="app=contract")
    await client.create(Kind.Secret, secret(here, name="before"))
    version = [page.version async for page in client.pages(query)][-1]
    made = (await client.create(Kind.Secret, secret(here, a="MQ==")))["metadata"]
    await client.merge(Kind.Secret, here, "one", {"data": {"a": "Mg=="}})
    await client.create(Kind.Secret, {**secret(here, name="two")})
    # Whoever leaves the selection is gone for those who watch it.
    await client.merge(Kind.Secret, here, "two", {"metadata": {"labels": {"app": "other"}}})
    await client.delete(Kind.Secret, here, "one", made["uid"])
    told: list[tuple[str, str]] = []
    versions: list[int] = []
    # A watch that is left to the garbage collector closes its connection when nobody waits for it.
    async with asyncio.timeout(_EVENTS_SECONDS), aclosing(client.watch(query, version)) as events:
        async for event in events:
            told.append((event.type.value, event.body["metadata"]["name"]))
            versions.append(int(event.version))
            if len(told) == 5:
                break
    assert told == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("ADDED", "two"),
        ("DELETED", "two"),
        ("DELETED", "one"),
    ]
    assert versions == sorted(set(versions))


CHECKS: Final[tuple[Check, ...]] = tuple(
    each
    for name, each in vars().items()
    if inspect.iscoroutinefunction(each) and not name.startswith("_")
)
"""Whatever is public and asks."""
