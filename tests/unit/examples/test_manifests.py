from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from disttrain.job import defaults
from disttrain.job.parsing import parse_job
from disttrain.task import checks
from disttrain.task.loading import load_task
from disttrain.task.task import Split

MANIFEST_FILES = ("job.yaml", "job-small.yaml")
EXAMPLES = Path(__file__).parents[3] / "examples"
EXAMPLE_NAMES = (
    "digits",
    "cifar10",
    "softmax_regression",
    "speech",
    "language",
    "image-local",
    "autoencoder",
)
MANIFESTS = [
    *(EXAMPLES / name / file for name in EXAMPLE_NAMES for file in MANIFEST_FILES),
    EXAMPLES / "speech" / "job-sandblaster.yaml",
    EXAMPLES / "digits" / "job-local-steps.yaml",
    EXAMPLES / "language" / "job-local-steps.yaml",
]


def test_each_example_has_a_manifest_a_small_one_and_a_readme() -> None:
    for name in EXAMPLE_NAMES:
        files = {path.name for path in (EXAMPLES / name).iterdir()}
        assert {"README.md", f"{name.replace('-', '_')}.py", *MANIFEST_FILES} <= files


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_manifest_leads_to_a_task_that_can_be_trained(path: Path) -> None:
    job = parse_job(path.read_text(), source=path.name)
    reference = job.spec.task
    task = load_task(reference.entrypoint, reference.arguments, path.parent)
    model = checks.check_model(task.model())
    samples = [
        checks.check_dataset(
            task.dataset(split), split, batch_size=defaults.samples_per_step(job.spec)
        )
        for split in Split
    ]
    dataset = task.dataset(Split.TRAIN)
    batch = next(iter(DataLoader(dataset, batch_size=8, collate_fn=task.collate)))
    gradients = torch.autograd.grad(
        checks.check_loss(task.loss(model, batch)).mean, [*model.parameters()]
    )
    with torch.no_grad():  # As evaluations are.
        measures = checks.check_measures(task.measure(model, batch))
    assert samples[0] > samples[1]
    bits = {"bits_per_byte": 10.0}
    assert all(0 <= value <= 8 * bits.get(name, 1.0) for name, value in measures.items())
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_the_sample_data_stay_below_three_megabytes() -> None:
    sizes = [path.stat().st_size for path in (EXAMPLES / "data").iterdir()]
    assert 0 < sum(sizes) <= 3_000_000
