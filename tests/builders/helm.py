"""The chart, by helm: rendered, and installed on the test cluster."""

import json
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from builders import product_images
from cluster import Kubectl, binaries, commands
from cluster.kubectl import NOT_CONNECTED, TIMED_OUT

CHART: Final = product_images.REPOSITORY / "charts" / "disttrain-operator"
KUBERNETES: Final = f"--kube-version={binaries.KUBERNETES_VERSION}"
INSTALL_LIMIT: Final = timedelta(minutes=4)
AS_SMALL_AS_OTHERS: Final = {"requests": {"cpu": "20m", "memory": "64Mi"}}
"""Who asks for ten times as much gets ten times the cores, and takes the room others wait for."""
CERTIFICATE_SECONDS: Final = "DISTTRAIN_CERTIFICATE_SECONDS"
"""How long the certificates of pods are valid: whoever starts the tests may say it."""

Values = Mapping[str, Any]


def only_in(namespace: Kubectl) -> dict[str, Any]:
    """Return values for an operator of this namespace alone, with images that tests build."""
    return {
        "imagePrefix": product_images.PREFIX,
        "watchNamespaces": [namespace.namespace],
        "podDefaults": {
            "spec": {"containers": [{"name": "disttrain", "resources": AS_SMALL_AS_OTHERS}]}
        },
        "resources": AS_SMALL_AS_OTHERS,
        "extraEnv": [
            {"name": name, "value": value}
            for name, value in os.environ.items()
            if name == CERTIFICATE_SECONDS and value
        ],
    }


def lint(values: Values) -> None:
    """Raise CommandFailed, with helm's words, unless the chart is right with these values."""
    with _file(values) as file:
        commands.run(_helm(), "lint", "--strict", KUBERNETES, f"--values={file}", CHART)


def template(values: Values, namespace: str = "disttrain-system", files: Sequence[str] = ()) -> str:
    """Return the manifests that `helm install disttrain` would apply, or those of some files."""
    chosen = [f"--show-only=templates/{file}" for file in files]
    with _file(values) as file:
        where = (KUBERNETES, f"--namespace={namespace}", f"--values={file}")
        return commands.run(_helm(), "template", "disttrain", CHART, *where, *chosen)


def rendered(
    values: Values, namespace: str = "disttrain-system", files: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Return the same as objects."""
    return [found for found in yaml.safe_load_all(template(values, namespace, files)) if found]


def upgrade(
    namespace: Kubectl, release: str, values: Values, chart: Path = CHART, user: str = ""
) -> None:
    """Install the chart, or upgrade the release; returns when the operator is ready.

    `user`: who does it, in place of the cluster's administrator.
    """
    with _file(values) as file:
        # The CRD belongs to the whole cluster: another release may have brought it.
        how = ("--install", "--take-ownership", "--wait", f"--values={file}", *_as(user))
        limit = f"--timeout={INSTALL_LIMIT.total_seconds():.0f}s"
        # Or it made it between helm's look and its own attempt.
        again = ("already exists", NOT_CONNECTED, TIMED_OUT)
        _run(namespace, "upgrade", release, chart, *how, limit, again=again)


def test(namespace: Kubectl, release: str) -> None:
    """Run `helm test`; raise CommandFailed unless it succeeds."""
    _run(namespace, "test", release, "--timeout=180s")


def uninstall(namespace: Kubectl, release: str, user: str = "") -> None:
    """Remove the release; returns when its objects are gone. `user`: as for `upgrade`."""
    _run(namespace, "uninstall", release, "--wait", "--timeout=180s", *_as(user))


def _run(namespace: Kubectl, *arguments: str | Path, again: Collection[str] = ()) -> None:
    target = (f"--kubeconfig={namespace.kubeconfig}", f"--namespace={namespace.namespace}")
    limit = INSTALL_LIMIT + timedelta(seconds=20)
    commands.run_again(_helm(), *arguments, *target, again=again, limit=limit)


def _as(user: str) -> list[str]:
    return [f"--kube-as-user={user}"] if user else []


def _helm() -> Path:
    return binaries.path("helm")


@contextmanager
def _file(values: Values) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(dict(values), file)
        file.flush()
        yield Path(file.name)
