"""All objects of a job, as a real API server reads them: no unknown field, no wrong value."""

import json
from typing import Any

import pytest

from builders import operator_jobs
from cluster import Kubectl
from disttrain.job.names import Role
from disttrain_operator.manifests import launch_secret
from disttrain_operator.manifests.children import children, common
from disttrain_operator.manifests.context import Context, Scale

TEMPLATE = {
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"disk": "fast"},
        "containers": [
            {
                "name": "disttrain",
                "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
                "env": [{"name": "HF_HOME", "value": "/tmp/hf"}],
            },
            {"name": "side", "image": "side:1"},
        ],
    },
}


def contexts() -> dict[str, Context]:
    everywhere = {"template": TEMPLATE}
    return {
        "plain": operator_jobs.context(),
        "templates": operator_jobs.context(
            coordinator=everywhere,
            parameterServer={"shards": 2, **everywhere},
            replicas={"count": 2000, **everywhere},
            task={"entrypoint": "a:B", "source": {"configMap": "code"}},
            checkpoint={"volume": {"size": "5Gi", "storageClassName": "fast"}},
        ),
    }


def bodies(context: Context) -> list[dict[str, Any]]:
    scale = Scale(shards=2, replicas=3, coordinator=True)
    made = [
        child.body
        for child in (*children(context, scale), *common(context.namespace, context.config))
    ]
    launched = launch_secret.launch_file(context)
    return [*made, launch_secret.secret(context, operator_jobs.trust(context.uid), launched)]


@pytest.mark.parametrize("name", list(contexts()))
def test_the_api_server_takes_every_object_strictly(namespace: Kubectl, name: str) -> None:
    context = contexts()[name]
    objects = [
        {**body, "metadata": {**body["metadata"], "namespace": namespace.namespace}}
        for body in bodies(context)
    ]
    assert len(objects) == 10
    content = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})

    checked = namespace.run(
        "create", "--dry-run=server", "--validate=strict", "-f", "-", "-o", "name", stdin=content
    )

    assert len(checked.split()) == len(objects)
    assert Role.SHARD.value in checked
