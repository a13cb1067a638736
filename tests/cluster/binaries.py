"""The Go programs of the cluster, built once from the Go module proxy and kept in the cache."""

import hashlib
import shutil
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from cluster import commands, layout

KUBERNETES_VERSION: Final = "1.34.4"
"""The newest that takes cgroup v1 and containerd 1.6 as they are."""

INSTALLED: Final = {
    "coredns": "github.com/coredns/coredns@v1.12.4",
    "helm": "helm.sh/helm/v3/cmd/helm@v3.19.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0",
}
SOURCE: Final = Path(__file__).parent / "kubernetes"
BUILD_LIMIT: Final = timedelta(minutes=30)
"""A cold build takes 5 minutes on 2 idle cores; busy ones take several times that."""


def folder() -> Path:
    """Return where the programs of exactly these versions are, or will be once built."""
    digest = hashlib.sha256(repr(INSTALLED).encode())
    for name in ("go.mod", "go.sum", "main.go"):
        digest.update((SOURCE / name).read_bytes())
    return layout.cache() / f"programs-{digest.hexdigest()[:16]}"


def kubernetes(program: str) -> list[str | Path]:
    """Return the start of a command line for a Kubernetes program: `kubelet`, `kubectl`..."""
    return [folder() / "kubernetes", program]


def path(program: str) -> Path:
    """Return the file of `coredns`, `helm` or `kubeconform`."""
    return folder() / program


def missing() -> list[str]:
    """Return the programs that are still to be built."""
    return [name for name in ("kubernetes", *INSTALLED) if not path(name).exists()]


def build_missing(say: Callable[[str], None] | None = None) -> None:
    """Build what is missing; says what it does, as it takes minutes the first time."""
    tell = say or _say_on_stderr
    for name in missing():
        began = time.monotonic()
        tell(f"building {name} for the test cluster (once; minutes on a cold machine)")
        _build(name)
        tell(f"built {name} in {time.monotonic() - began:.0f} s")


def _build(name: str) -> None:
    folder().mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that a build that was cut short never counts as done.
    unfinished = folder() / f"{name}.building"
    unfinished.mkdir(exist_ok=True)
    target: tuple[str | Path, ...]
    if name == "kubernetes":
        target = ("build", "-mod=readonly", "-ldflags", _versions(), "-o", unfinished / name, ".")
    else:
        target = ("install", "-ldflags", "-s -w", INSTALLED[name])
    # Not on a person's cost: a build may wait, what they do meanwhile may not.
    command = ("nice", "-n", "10", "go", target[0], "-trimpath", *target[1:])
    variables = {"CGO_ENABLED": "0", "GOBIN": str(unfinished), "GOFLAGS": "-buildvcs=false"}
    commands.run_patiently(*command, folder=SOURCE, environment=variables, limit=BUILD_LIMIT)
    (unfinished / name).replace(path(name))
    shutil.rmtree(unfinished)


def _versions() -> str:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    values = {
        "k8s.io/component-base/version.gitVersion": f"v{KUBERNETES_VERSION}",
        "k8s.io/component-base/version.gitMajor": major,
        "k8s.io/component-base/version.gitMinor": minor,
        "k8s.io/client-go/pkg/version.gitVersion": f"v{KUBERNETES_VERSION}",
    }
    return " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])


def _say_on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
