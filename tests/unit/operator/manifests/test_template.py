from typing import Any

import pytest

from disttrain_operator.manifests.template import merge


@pytest.mark.parametrize(
    ("ours", "theirs", "merged"),
    [
        ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"a": {"b": 1, "c": 3}}),
        ({"a": 1, "b": 2}, {"a": None}, {"b": 2}),
        ({"tolerations": [{"key": "x"}]}, {"tolerations": []}, {"tolerations": []}),
        (
            {"containers": [{"name": "disttrain", "image": "i", "tty": True}]},
            {"containers": [{"name": "side"}, {"name": "disttrain", "image": "j", "tty": None}]},
            {"containers": [{"name": "disttrain", "image": "j"}, {"name": "side"}]},
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {}}}]},
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "A", "value": "1"}]},
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}]},
            {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}]},
            {"volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]},
        ),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/b"}]},
            {"volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/b"}]},
        ),
        ({"containers": [{"name": "c"}]}, {"containers": "text"}, {"containers": "text"}),
        ({"containers": [{"name": "c"}]}, {"containers": [7]}, {"containers": [{"name": "c"}, 7]}),
    ],
)
def test_templates_merge_as_kubectl_merges(
    ours: dict[str, Any], theirs: dict[str, Any], merged: dict[str, Any]
) -> None:
    assert merge(ours, theirs) == merged


def test_neither_side_is_changed() -> None:
    ours = {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}
    theirs = {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}

    merge(ours, theirs)

    assert ours == {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}]}]}
    assert theirs == {"containers": [{"name": "c", "env": [{"name": "B", "value": "2"}]}]}
