"""`python tests/left_out.py CLUSTER WORDS`: the last line of a test command, what it did not run.

CLUSTER is the Makefile's: own or existing. WORDS name what the command leaves to other ones.
"""

import sys
from collections.abc import Iterator

import torch

from builders import shared_cluster
from cluster import Unavailable, hooks, prerequisites


def main() -> int:
    """Print one line."""
    cluster, words = sys.argv[1:]
    sys.stdout.write(f"left out: {', '.join((words, *_missing_here(cluster)))}\n")
    return 0


def _missing_here(cluster: str) -> Iterator[str]:
    if not torch.cuda.is_available():
        yield "tests on a GPU (PyTorch finds none)"
    if cluster == "own":
        against = prerequisites.reason_against()
        if against is not None:
            yield f"tests on a Kubernetes ({against})"
        return
    if shared_cluster.is_ours():
        return
    yield "tests that stop nodes or the API server (on a cluster that is not ours)"
    try:
        hooks.given()
    except Unavailable as error:
        yield f"tests that need an image or kill a container ({error})"


if __name__ == "__main__":
    sys.exit(main())
