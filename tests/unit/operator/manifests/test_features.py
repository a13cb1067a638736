from typing import Any

import pytest

from disttrain_operator.manifests.config import PodFeature
from disttrain_operator.manifests.features import asked


@pytest.mark.parametrize(
    ("spec", "features"),
    [
        ({}, []),
        ({"hostNetwork": True}, [PodFeature.HOST_NETWORK]),
        ({"hostNetwork": False}, []),
        ({"hostPID": True}, [PodFeature.PRIVILEGED]),
        ({"serviceAccountName": "root"}, [PodFeature.SERVICE_ACCOUNT]),
        ({"automountServiceAccountToken": True}, [PodFeature.SERVICE_ACCOUNT]),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, [PodFeature.HOST_PATH]),
        (
            {
                "volumes": [
                    {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"a": 1}}]}}
                ]
            },
            [PodFeature.SERVICE_ACCOUNT],
        ),
        ({"containers": [{"securityContext": {"privileged": True}}]}, [PodFeature.PRIVILEGED]),
        (
            {"initContainers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            [PodFeature.PRIVILEGED],
        ),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, [PodFeature.HOST_NETWORK]),
        ({"containers": "nonsense", "volumes": 7}, []),
    ],
)
def test_what_needs_leave_is_found(spec: dict[str, Any], features: list[PodFeature]) -> None:
    assert [feature for feature, _ in asked({"spec": spec})] == features
