"""The numbers of a job's status in words. Pure."""

from math import nan

from disttrain.job.status import JobStatus, TrainingStatus


def progress(status: JobStatus) -> str:
    """How far training is: `42%, epoch 3.20, 12,345 samples, 3 min 05 s left`."""
    training = status.training
    if training is None:
        return ""
    parts = (
        _number(training.progress_percent, "{}%"),
        _number(training.epoch, "epoch {:.2f}"),
        _number(training.samples, "{:,} samples"),
        _number(training.estimated_remaining_seconds, "{:.0f} s left"),
    )
    return ", ".join(part for part in parts if part)


def batch_method(status: JobStatus) -> str:
    """How far a batch method is: `iteration 12, gradient 0.0031, 14 evaluations`."""
    found = status.sandblaster
    if found is None:
        return ""
    parts = (
        _number(found.iteration, "iteration {:,}"),
        _number(found.gradient_norm, "gradient {:.2g}"),
        _number(found.evaluations, "{:,} evaluations"),
        _number(found.requeued or None, "{:,} groups given again"),
        _number(found.copies or None, "{:,} copies"),
    )
    return ", ".join(part for part in parts if part)


def warning(status: JobStatus) -> str:
    return "" if status.sandblaster is None else status.sandblaster.warning or ""


def measures(status: JobStatus) -> str:
    """Loss, or objective of a batch method, and measures: `loss 0.25, accuracy nan`."""
    training = status.training
    if training is None:
        return ""
    name = "loss" if status.sandblaster is None else "objective"
    known = {} if training.loss is None else {name: training.loss}
    # JSON has no word for what is no number, and an object of the API server holds JSON.
    known |= {each: nan if value is None else value for each, value in training.metrics.items()}
    return ", ".join(f"{name} {value:.4g}" for name, value in known.items())


def speed(status: JobStatus) -> str:
    training = status.training
    if training is None:
        return ""
    rate = _number(training.samples_per_second, "{:,.0f} samples/s")
    return ", ".join(part for part in (rate, staleness(training)) if part)


def staleness(training: TrainingStatus) -> str:
    """Median and 99th percentile; empty before the first push."""
    if training.staleness_p50 is None or training.staleness_p99 is None:
        return ""
    return f"staleness p50 {training.staleness_p50:g} p99 {training.staleness_p99:g} updates"


def restarts(status: JobStatus) -> str:
    if status.restarts is None:
        return ""
    counts = status.restarts.model_dump()
    return ", ".join(f"{role} {count}" for role, count in counts.items() if count)


def data(status: JobStatus) -> str:
    found = status.data
    if found is None:
        return ""
    parts = (
        _number(found.portions_done, "{:,} portions done"),
        _number(found.portions_requeued or None, "{:,} given again"),
        _number(found.samples_repeated or None, "{:,} samples repeated"),
    )
    return ", ".join(part for part in parts if part)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
