"""The README's commands, as a person types them: from `kubectl apply` to a model on the volume."""

import json
import re
import shlex
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from safetensors import torch as safetensors

from builders import product_images
from cluster import Kubectl, commands, layout, volumes

PARAMETERS: Final = 38_282
"""What the example's README says."""
TARGET: Final = 0.98
TRAINING_LIMIT: Final = timedelta(minutes=6)
"""PyTorch is imported six times and at most 30 epochs pass, on two cores that others use, too."""
OWN_KINDS: Final = (
    "pods,jobs,replicasets,statefulsets,services,configmaps,secrets,serviceaccounts,roles,"
    "rolebindings,poddisruptionbudgets,networkpolicies"
)


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.usefixtures("runtime_image", "operator")
def test_digits_are_learned_from_apply_to_a_model_on_the_volume(namespace: Kubectl) -> None:
    volume = f"{namespace.namespace}-checkpoints"
    volumes.make(namespace, volume, claim=f"{namespace.namespace}/digits-checkpoints")
    *preparing, reading = readme_commands()

    for words in preparing:
        run(namespace, words)
    measures = json.loads(run(namespace, reading))

    job = namespace.get("disttrainjob", "digits")
    assert job["status"]["phase"] == "Complete"
    # The example's README says why a model may end a little below its target.
    assert measures["accuracy"] >= TARGET - 0.01
    # The owner of the run's folder is not the user who runs this test; root reads it.
    folder = layout.volumes() / volume / f"digits-{job['metadata']['uid']}"
    model = safetensors.load_file(folder / "model.safetensors")
    assert sum(tensor.numel() for tensor in model.values()) == PARAMETERS

    namespace.run("delete", "disttrainjob", "digits")
    commands.wait_until(lambda: leftovers(namespace) == [], "all but the claim is gone")
    claim = namespace.get("persistentvolumeclaim", "digits-checkpoints")
    assert claim["status"]["phase"] == "Bound"
    assert_model_is_kept(folder)


def readme_commands() -> list[list[str]]:
    """What stands after `$ kubectl` in the README's section on Kubernetes."""
    text = (product_images.REPOSITORY / "README.md").read_text()
    section = text.partition("\n## On Kubernetes\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^\$ kubectl (.*)$", section, re.MULTILINE)]


def run(namespace: Kubectl, words: list[str]) -> str:
    command = namespace.command(*words)
    return commands.run(*command, folder=product_images.REPOSITORY, limit=TRAINING_LIMIT)


def leftovers(namespace: Kubectl) -> list[str]:
    return namespace.run(
        "get", OWN_KINDS, "-o", "name", "--selector=app.kubernetes.io/instance=digits"
    ).split()


def assert_model_is_kept(folder: Path) -> None:
    assert (folder / "model.safetensors").stat().st_size > 4 * PARAMETERS
