"""Kueue and AppWrapper's controller, and what connects jobs with Kueue, as images."""

from typing import Any, Final

from builders import product_images
from builders.go_programs import GoPrograms
from cluster import Kubectl, images

OWN: Final = GoPrograms(product_images.REPOSITORY / "kueue", {"disttrain-kueue": "."})
KUEUE: Final = "sigs.k8s.io/kueue"
APPWRAPPER: Final = "github.com/project-codeflare/appwrapper"
OTHERS: Final = GoPrograms(
    product_images.REPOSITORY / "tests/end_to_end/real_jobs/queues",
    {"kueue": f"{KUEUE}/cmd/kueue", "appwrapper": f"{APPWRAPPER}/cmd"},
)


def image(programs: GoPrograms, name: str) -> images.Recipe:
    """Return how the image with one of the programs is built, by the Containerfile of our own."""
    return images.Recipe(
        containerfile=product_images.REPOSITORY / "images" / "kueue" / "Containerfile",
        context=programs.built(),
        tag=f"{product_images.PREFIX}{name}:{product_images.VERSION}",
        arguments={"PROGRAM": name},
    )


def installation(kubectl: Kubectl, module: str) -> list[dict[str, Any]]:
    """Return what the authors of one say is to be installed of it."""
    return OTHERS.installation(kubectl, module, "config/default")
