"""A job on the test cluster by what its user sees: its object, its conditions, its pods."""

import json
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Final

from cluster import Kubectl, commands
from cluster.errors import CommandFailed, NotInTime

LIMIT: Final = timedelta(seconds=400)
"""PyTorch is imported once per process and again after each death, on cores that others use."""
_PAUSE: Final = timedelta(milliseconds=250)
"""Some questions still cost most of this in processor time, which those who train need, too."""
_NEW_CONTAINER: Final = {"restartCount": 0}
"""What stands for the container of a pod of which no kubelet has told anything."""
OWN_KINDS: Final = (
    "pods,jobs,replicasets,statefulsets,services,configmaps,secrets,serviceaccounts,roles,"
    "rolebindings,poddisruptionbudgets,networkpolicies"
)

Status = dict[str, Any]


class JobView:
    """One job by its name, there or not."""

    def __init__(self, namespace: Kubectl, name: str) -> None:
        self.kubectl = namespace
        self.name = name
        self.resource = f"disttrainjob/{name}"

    def patch(self, **spec: Any) -> None:
        self.kubectl.run("patch", self.resource, "--type=merge", "-p", json.dumps({"spec": spec}))

    def delete(self) -> None:
        self.kubectl.run("delete", self.resource)

    def get(self) -> dict[str, Any]:
        return self.kubectl.get("disttrainjob", self.name)

    def status(self) -> Status:
        found: Status = self.get().get("status", {})
        return found

    def condition(self, kind: str) -> dict[str, str]:
        """One condition of the status; empty without it."""
        conditions = self.status().get("conditions", [])
        return next((each for each in conditions if each["type"] == kind), {})

    def events(self) -> list[str]:
        """Reasons of the job's events, as often as each was told."""
        return [
            each["reason"]
            for each in self.kubectl.items("events")
            if each["involvedObject"]["kind"] == "DistTrainJob"
            and each["involvedObject"]["name"] == self.name
        ]

    def pods(self, role: str | None = None) -> list[dict[str, Any]]:
        """The pods of a role, or all of the job."""
        of_role = "" if role is None else f",app.kubernetes.io/component={role}"
        return self.kubectl.items("pods", f"{self._selector}{of_role}")

    def uids(self, role: str | None = None) -> set[str]:
        """The identities of its pods."""
        return {pod["metadata"]["uid"] for pod in self.pods(role)}

    def uids_of_jobs(self) -> set[str]:
        """Which jobs of its name have pods."""
        return {pod["metadata"]["labels"]["disttrain.dev/job-uid"] for pod in self.pods()}

    def restarts(self, role: str) -> list[int]:
        """How often the container of each pod of a role was restarted, as its kubelet tells it."""
        return [
            each["restartCount"]
            for pod in self.pods(role)
            for each in pod["status"].get("containerStatuses", [_NEW_CONTAINER])
        ]

    def leftovers(self) -> list[str]:
        """Names of the job's objects, without its volume."""
        selector = f"--selector={self._selector}"
        return self.kubectl.run("get", OWN_KINDS, "-o", "name", selector).split()

    def identities(self, children: Iterable[str]) -> set[str]:
        """The uids of those of the objects that are there, all of one moment or nearly so."""
        found = self.kubectl.run("get", "--ignore-not-found", "-o", "json", *children)
        # One object comes as it is, several in a list, none as nothing.
        content = json.loads(found) if found else {"items": []}
        return {each["metadata"]["uid"] for each in content.get("items", [content])}

    def has(self, child: str) -> bool:
        """Whether an object is there. An API server that does not say so is an error."""
        return bool(self.kubectl.run("get", child, "--ignore-not-found", "-o", "name"))

    def wait_until(self, holds: Callable[[], bool], what: str, limit: timedelta = LIMIT) -> None:
        """Return once it holds. A question that the API server does not answer is asked again."""
        failures: list[CommandFailed] = []

        def is_said() -> bool:
            try:
                return holds()
            except CommandFailed as error:
                failures[:] = [error]
                return False

        try:
            commands.wait_until(is_said, f"{self.name}: {what}", limit=limit, pause=_PAUSE)
        except NotInTime as error:
            raise error from (failures[0] if failures else None)

    def wait_for_phase(self, phase: str, limit: timedelta = LIMIT) -> None:
        self.wait_until(lambda: self.status().get("phase") == phase, f"phase {phase}", limit)

    def wait_for_condition(
        self, kind: str, limit: timedelta = LIMIT, words: str = ""
    ) -> dict[str, str]:
        """The condition as it was when it held, with these words in its message."""
        seen: list[dict[str, str]] = []

        def holds() -> bool:
            # Of what passes, as why a pod has no node yet, a second look would find nothing.
            seen.append(self.condition(kind))
            return seen[-1].get("status") == "True" and words in seen[-1]["message"]

        self.wait_until(holds, f"{kind} {words}", limit)
        return seen[-1]

    @property
    def _selector(self) -> str:
        return f"app.kubernetes.io/instance={self.name}"
