"""Which cluster and namespace a person means."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a person says about it; None everywhere means what kubectl would take."""

    kubeconfig: Path | None = None
    """File to read instead of those in $KUBECONFIG, or of ~/.kube/config."""

    context: str | None = None
    """Context of the kubeconfig instead of the current one."""

    namespace: str | None = None
    """Namespace instead of the context's."""
