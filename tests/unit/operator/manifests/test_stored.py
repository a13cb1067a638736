"""A job's objects in an annotation, which people can edit: what is not whole counts as none."""

import copy
from typing import Any

import pytest

from builders.operator_jobs import context
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests import children, stored
from disttrain_operator.manifests.context import Scale
from disttrain_operator.manifests.stored import Objects

SCALE = Scale(shards=2, replicas=3, coordinator=True)


def edited(kind: Kind, path: tuple[str, ...], value: Any) -> Objects | None:
    """The objects, read back after a field of one was replaced; None: taken away."""
    made = []
    for child in children.children(context(), SCALE):
        body = copy.deepcopy(child.body)
        if child.kind is kind:
            holder = body
            for name in path[:-1]:
                holder = holder[name]
            if value is None:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
        made.append(children.Child(child.kind, child.name, body))
    return stored.unpack(stored.pack(Objects(tuple(made), "launch")))


def test_what_is_packed_is_unpacked() -> None:
    found = stored.unpack(stored.pack(Objects(tuple(children.children(context(), SCALE)), "x")))

    assert found is not None
    assert not stored.is_strange(found, context())


@pytest.mark.parametrize("kind", [Kind.StatefulSet, Kind.ReplicaSet, Kind.Job])
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec",), None),
        (("spec",), []),
        (("spec", "template"), None),
        (("spec", "template", "spec"), "text"),
        (("metadata",), None),
        (("metadata", "name"), ["no", "text"]),
        (("metadata", "annotations"), 7),
        (("metadata", "labels"), None),
    ],
)
def test_a_workload_that_is_not_whole_counts_as_none(
    kind: Kind, path: tuple[str, ...], value: Any
) -> None:
    assert edited(kind, path, value) is None


@pytest.mark.parametrize("labels", [None, 7])
def test_any_object_without_labels_makes_the_text_count_as_none(labels: Any) -> None:
    assert edited(Kind.Service, ("metadata", "labels"), labels) is None


@pytest.mark.parametrize("value", [None, 7, ""])
def test_a_coordinator_without_an_account_counts_as_none(value: Any) -> None:
    path = ("spec", "template", "spec", "serviceAccountName")

    assert edited(Kind.Job, path, value) is None


@pytest.mark.parametrize("kind", [Kind.StatefulSet, Kind.Service])
@pytest.mark.parametrize("path", [("metadata", "labels"), ("metadata", "namespace")])
def test_an_object_that_would_not_be_found_again_is_strange(
    kind: Kind, path: tuple[str, ...]
) -> None:
    value: Any = {"app": "other"} if path[-1] == "labels" else "elsewhere"
    found = edited(kind, path, value)

    assert found is not None
    assert stored.is_strange(found, context())
