"""Kueue, and what connects jobs with it, as images."""

from typing import Any, Final

from builders import product_images
from builders.go_programs import GoPrograms
from cluster import Kubectl, images

MODULE: Final = "sigs.k8s.io/kueue"
PROGRAMS: Final = GoPrograms(
    product_images.REPOSITORY / "kueue",
    {"kueue": f"{MODULE}/cmd/kueue", "disttrain-kueue": "."},
)


def image(name: str) -> images.Recipe:
    """Return how the image with one of the programs is built, by the Containerfile of our own."""
    return images.Recipe(
        containerfile=product_images.REPOSITORY / "images" / "kueue" / "Containerfile",
        context=PROGRAMS.built(),
        tag=f"{product_images.PREFIX}{name}:{product_images.VERSION}",
        arguments={"PROGRAM": name},
    )


def installation(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return what Kueue's authors say is to be installed of it."""
    return PROGRAMS.installation(kubectl, MODULE, "config/default")
