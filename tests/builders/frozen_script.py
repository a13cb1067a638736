"""A plain script that makes a job's objects as fast as it can: what the operator is held against.

The objects, and the rights to make them, are those of the operator at commit 670d83a, so that an
operator that makes fewer does not make its measure easier. `frozen_script.json` is therefore never
made anew. The job that owns them is a real one; no operator looks after it.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from builders import many_at_once, many_jobs, operator_rights
from builders.api_server import ApiServer
from builders.many_jobs import JOBS_PATH
from builders.measured_planes import Maker
from cluster.bare import ControlPlane

_FROZEN: Final = Path(__file__).with_suffix(".json")
_PART_OF_UID: Final = 8
"""Characters of it that stood in names."""


class FrozenScript:
    """The objects of 32 jobs at a time, each after what it names, with the rights of then."""

    name = "script"
    path = JOBS_PATH

    def is_built(self) -> bool:
        """It always is."""
        return True

    @asynccontextmanager
    async def started(self, plane: ControlPlane) -> AsyncIterator[Maker]:
        """Yield what makes a job and its objects."""
        text = _FROZEN.read_text()
        rights = operator_rights.take(plane.kubectl, json.loads(text)["rights"], "script")
        async with (
            ApiServer(plane.kubeconfig, many_at_once.AT_ONCE) as user,
            ApiServer(rights.kubeconfig, many_at_once.AT_ONCE) as own,
        ):
            yield partial(_make, text, user, own)


async def _make(text: str, user: ApiServer, own: ApiServer, name: str) -> None:
    job = await user.post(JOBS_PATH, many_jobs.job(name))
    for each in objects(text, name, job["metadata"]["uid"]):
        await own.post(each["path"], each["body"])


def objects(text: str, name: str, uid: str) -> list[dict[str, Any]]:
    """Return the bodies of a job's objects, and the paths at which they are made."""
    for placeholder, value in (
        ("$job", name),
        ("$uid", uid),
        ("$part_of_uid", uid[:_PART_OF_UID]),
    ):
        text = text.replace(placeholder, value)
    found: list[dict[str, Any]] = json.loads(text)["objects"]
    return found
