"""When a replica measures the model on the test split."""

from disttrain.job.section import Count, Positive, Section


class Evaluation(Section):
    """Measures of freshly fetched parameters during training; there is always one at the end."""

    every_epochs: Count | None = 1
    """Epochs between two evaluations. null: not by epochs."""

    every_seconds: Positive | None = None
    """Seconds between two evaluations. null: not by time."""

    batch_size: Count | None = None
    """Samples per forward pass. null: four times the batch size of training."""
