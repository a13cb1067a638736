"""kubectl with a given kubeconfig: the one door to the API server, as a person uses it.

Reading what is looked at most goes a shorter way (`asking`).
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from cluster import asking, binaries, commands
from cluster.errors import CommandFailed

NOT_CONNECTED = "net/http: TLS handshake timeout"
"""kubectl's words where the API server had no core for ten seconds, a limit no option moves."""
TIMED_OUT = "request did not complete within requested timeout"
"""Its words, and helm's, where the API server had no core for as long as a request may take."""
Manifest = Mapping[str, Any]
"""An object as Kubernetes reads it; what may stand in it is for the API server to say."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Commands against one cluster and, by default, one namespace."""

    kubeconfig: Path
    namespace: str = "default"

    def flattened(self, file: Path) -> Self:
        """Return the same with a kubeconfig that has the current context alone, and all keys."""
        file.touch(mode=0o600)
        file.write_text(self.run("config", "view", "--raw", "--minify", "--flatten", "-o", "json"))
        return replace(self, kubeconfig=file)

    def within(self, namespace: str) -> Self:
        """Return the same for another namespace."""
        return replace(self, namespace=namespace)

    def command(self, *arguments: str | Path) -> list[str | Path]:
        """Return the whole command line, to be run by other means."""
        target = (f"--kubeconfig={self.kubeconfig}", f"--namespace={self.namespace}")
        return [*binaries.kubernetes("kubectl"), *target, *arguments]

    def run(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        limit: timedelta = commands.LIMIT,
        again: Collection[str] = (NOT_CONNECTED,),
    ) -> str:
        """Return what kubectl printed; raise CommandFailed with its words otherwise.

        `again`: words with which it is sent again, within the limit. Who was not connected has
        asked for nothing.
        """
        command = self.command(*arguments)
        return commands.run_again(*command, again=again, limit=limit, stdin=stdin)

    def apply(self, *manifests: Manifest) -> None:
        """Apply objects on the server's side; twice is as good as once."""
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
        self.run(
            *("apply", "--server-side", "--force-conflicts", "-f", "-"),
            stdin=content,
            again=(NOT_CONNECTED, TIMED_OUT),
        )

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object; raise CommandFailed if it is not there."""
        found = asking.get(self.kubeconfig, self.namespace, kind, name)
        return found or json.loads(self.run("get", kind, name, "-o", "json"))

    def items(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Return the objects of a kind, those that a label selector picks."""
        found = asking.items(self.kubeconfig, self.namespace, kind, selector)
        if found is None:
            answer = json.loads(self.run("get", kind, f"--selector={selector}", "-o", "json"))
            found = answer["items"]
        return found

    def content(self, path: str) -> bytes:
        """Return what the API server answers at a path; empty where it has nothing to give."""
        found = asking.content(self.kubeconfig, path)
        if found is not None:
            return found
        try:
            return self.run("get", "--raw", path).encode()
        except CommandFailed:
            return b""

    def read(self, kind: str, name: str, path: str) -> str | None:
        """Return what a JSONPath finds in an object, None while there is no such object."""
        try:
            return self.run("get", kind, name, "-o", f"jsonpath={path}")
        except CommandFailed:
            return None

    def wait_until(self, condition: str, thing: str, limit: timedelta = commands.LIMIT) -> None:
        """Return once it holds: a condition's name, `create`, `delete` or `jsonpath=...`."""
        # Names of conditions begin with a capital.
        wanted = f"condition={condition}" if condition[0].isupper() else condition
        seconds = f"{limit.total_seconds():g}s"
        patience = limit + timedelta(seconds=10)

        def holds() -> bool:
            try:
                self.run("wait", f"--for={wanted}", thing, f"--timeout={seconds}", limit=patience)
            except CommandFailed as error:
                # kubectl's words for an object so new that it has no conditions yet.
                if "accessor error" in str(error):
                    return False
                raise
            return True

        commands.wait_until(holds, f"{condition} of {thing}", limit=limit)
