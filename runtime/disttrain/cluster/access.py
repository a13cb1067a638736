"""The way in to a cluster."""

from disttrain.cluster.errors import LibraryMissing
from disttrain.cluster.interface import Api, Target


def connect(target: Target) -> Api:
    """Read the credentials. Nothing is asked of the API server yet.

    Raises LibraryMissing or NoAccess.
    """
    try:
        # An extra, and slow to import: whoever has no cluster needs neither.
        from disttrain.cluster import kubernetes_api  # noqa: PLC0415
    except ModuleNotFoundError as error:
        message = (
            f"jobs of a cluster need the Kubernetes library, and {error.name} is not installed: "
            "pip install kubernetes, or install disttrain with its extra 'cluster'"
        )
        raise LibraryMissing(message) from error
    return kubernetes_api.open_api(target)
