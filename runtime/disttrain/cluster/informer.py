"""Objects of a cluster as they are now: listed once, then kept by a watch.

Not the Kubernetes library's informer: it lists all in one answer, asks again at once after a
refusal, logs what is handled here, and its end waits for a watch that is silent.
"""

import json
import threading
from contextlib import suppress
from typing import Final, Self

from disttrain.cluster import jobs, resources
from disttrain.cluster.errors import ClusterError, Unreachable
from disttrain.cluster.interface import Api, Object
from disttrain.cluster.resources import Resource

PAUSE_SECONDS: Final = 5.0
"""Before the objects are listed again, after a watch ended or was refused."""

_CHANGES: Final = {"ADDED", "MODIFIED", "DELETED"}


class Informer:
    """The objects of a kind that a selector selects. Use as a context manager, from any thread.

    While the API server is away they are as they were; whoever may not see them sees none.
    """

    def __init__(self, api: Api, resource: Resource, namespace: str, selector: str) -> None:
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._selector = selector
        self._objects: dict[str, Object] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # A daemon: a watch that is silent holds up nobody.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no longer; the connection ends with what comes next on it."""
        self._closed.set()

    def objects(self) -> list[Object]:
        """The objects in the order of their names."""
        with self._lock:
            return [self._objects[name] for name in sorted(self._objects)]

    def _run(self) -> None:
        while not self._closed.is_set():
            with suppress(Unreachable, ClusterError):
                self._watch(self._list())
            self._closed.wait(PAUSE_SECONDS)

    def _list(self) -> str:
        """Take all of them anew; the version from which a watch goes on."""
        request = resources.listing(self._resource, self._namespace, labelSelector=self._selector)
        found: dict[str, Object] = {}
        version = ""
        for page in jobs.pages(self._api, request):
            version = str((page.get("metadata") or {}).get("resourceVersion") or "")
            found |= {each["metadata"]["name"]: each for each in page.get("items") or ()}
        with self._lock:
            self._objects = found
        return version

    def _watch(self, version: str) -> None:
        """Take what changes, until the API server has enough of it."""
        request = resources.watch(
            self._resource,
            self._namespace,
            labelSelector=self._selector,
            resourceVersion=version,
        )
        with self._api.lines(request) as lines:
            for line in lines:
                event = json.loads(line)
                if self._closed.is_set() or event["type"] not in _CHANGES:
                    return
                self._take(event["type"], event["object"])

    def _take(self, event: str, found: Object) -> None:
        name = found["metadata"]["name"]
        with self._lock:
            if event == "DELETED":
                self._objects.pop(name, None)
            else:
                self._objects[name] = found
