"""The README's commands, as a person types them: from `kubectl apply` to a model on the volume."""

import json
import re
import shlex
from datetime import timedelta
from typing import Final

import pytest
from safetensors import torch as safetensors

from builders import product_images
from builders.job_view import JobView
from builders.volume_reader import VolumeReader
from cluster import Kubectl, commands

PARAMETERS: Final = 38_282
"""What the example's README says."""
TARGET: Final = 0.98
TRAINING_LIMIT: Final = timedelta(minutes=10)
"""PyTorch is imported six times and at most 30 epochs pass, on two cores that others use, too."""


@pytest.mark.usefixtures("runtime_image", "operator")
def test_digits_are_learned_from_apply_to_a_model_on_the_volume(namespace: Kubectl) -> None:
    *preparing, reading = readme_commands()

    for words in preparing:
        run(namespace, words)
    measures = json.loads(run(namespace, reading))

    job = namespace.get("disttrainjob", "digits")
    assert job["status"]["phase"] == "Complete"
    # The example's README says why a model may end a little below its target.
    assert measures["accuracy"] >= TARGET - 0.01
    volume = VolumeReader(namespace, "digits-checkpoints")
    volume.start()
    path = f"digits-{job['metadata']['uid']}/model.safetensors"
    assert path in volume.files()
    model = safetensors.load(volume.content(path))
    assert sum(tensor.numel() for tensor in model.values()) == PARAMETERS

    namespace.run("delete", "disttrainjob", "digits")
    commands.wait_until(
        lambda: JobView(namespace, "digits").leftovers() == [], "all but the claim is gone"
    )
    claim = namespace.get("persistentvolumeclaim", "digits-checkpoints")
    assert claim["status"]["phase"] == "Bound"
    assert len(volume.content(path)) > 4 * PARAMETERS


def readme_commands() -> list[list[str]]:
    """What stands after `$ kubectl` in the README's section on Kubernetes."""
    text = (product_images.REPOSITORY / "README.md").read_text()
    section = text.partition("\n## On Kubernetes\n")[2].partition("\n## ")[0]
    return [shlex.split(line) for line in re.findall(r"^\$ kubectl (.*)$", section, re.MULTILINE)]


def run(namespace: Kubectl, words: list[str]) -> str:
    command = namespace.command(*words)
    return commands.run(*command, folder=product_images.REPOSITORY, limit=TRAINING_LIMIT)
