"""Numbers and states as people read them. Pure."""

from collections.abc import Iterable, Mapping
from math import nan

from disttrain.coordinator.phases import INCARNATIONS_PER_RUN
from disttrain.job.run_status import RunStatus
from disttrain.job.status import DataStatus, SandblasterStatus, TrainingStatus
from disttrain.job.stop import Stop, TargetMetric
from disttrain.launch.outcome import Result
from disttrain.launcher.completion import Completed


def count(number: float) -> str:
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as `42 s`, `3 min 05 s` or `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def measures(values: Mapping[str, float | None] | None) -> str:
    """The task's measures: `accuracy 0.972`; None is what was no number: `accuracy nan`."""
    known = (values or {}).items()
    return ", ".join(f"{name} {nan if value is None else value:.4g}" for name, value in known)


def evaluated(training: TrainingStatus) -> str:
    """Measures of the latest evaluation and of when: `accuracy 0.972 at 1,000 samples`."""
    told = measures(training.metrics)
    return told and told + known(training.metrics_samples, " at {:,} samples")


def missed(target: TargetMetric | None, values: Mapping[str, float | None] | None) -> str:
    """That the model of a complete job is not as good as was asked for; empty if it is."""
    found = None if target is None else (values or {}).get(target.name)
    if target is None or found is None or target.is_met(found):
        return ""
    at_least = target.at_least
    wanted = f"at most {target.at_most:g}" if at_least is None else f"at least {at_least:g}"
    return f"spec.stop.targetMetric was not met: {target.name} is {found:.4g}, not {wanted}"


def staleness(p50: float | None, p99: float | None) -> str:
    """Median and 99th percentile; empty before the first push."""
    return "" if p50 is None or p99 is None else f"staleness p50 {p50:g} p99 {p99:g} updates"


def quantiles(p50: float | None, p99: float | None) -> str:
    """The same for a table's column."""
    return "" if p50 is None or p99 is None else f"{p50:g}/{p99:g}"


def prediction_error(ratio: float | None) -> str:
    """How far predicted parameters are from those that come; empty where there are none."""
    return known(ratio, "predictions miss {:.0%} of the way")


def counted(number: int, things: str) -> str:
    """A number of things, with the word for one of them; empty for none."""
    return f"{count(number)} {things}{'s' * (number > 1)}" if number else ""


def batch_method(figures: SandblasterStatus | None) -> str:
    """How far a batch method is; empty for other strategies."""
    if figures is None:
        return ""
    parts = (
        known(figures.iteration, "iteration {:,}"),
        known(figures.gradient_norm, "gradient {:.2g}"),
    )
    return listed(parts)


def batch_work(figures: SandblasterStatus | None) -> str:
    """What a batch method has done for that: `14 evaluations, 2 copies`."""
    if figures is None:
        return ""
    parts = (
        known(figures.evaluations, "{:,} evaluations"),
        known(figures.requeued or None, "{:,} groups given again"),
        known(figures.copies or None, "{:,} copies"),
    )
    return listed(parts)


def data(figures: DataStatus | None) -> str:
    """What became of the portions: `96 portions done, 2 given again`."""
    if figures is None:
        return ""
    parts = (
        known(figures.portions_done, "{:,} portions done"),
        known(figures.portions_requeued or None, "{:,} given again"),
        known(figures.samples_repeated or None, "{:,} samples repeated"),
    )
    return listed(parts)


def known(value: float | None, form: str) -> str:
    """A figure in a form; empty if nobody knows it."""
    return "" if value is None else form.format(value)


def listed(parts: Iterable[str], between: str = ", ") -> str:
    return between.join(part for part in parts if part)


def ending(result: str, reason: str | None, message: str | None) -> str:
    """How and why a job ended: `Complete (Converged: no step makes the loss smaller)`."""
    why = ": ".join(part for part in (reason, message) if part and part != result)
    return f"{result} ({why})" if why else result


def completed(figures: Completed) -> str:
    """How far a complete run came: `complete (Epochs): 4 epochs, 5,748 samples in 12 s, ...`."""
    parts = [
        known(figures.iterations, "{:,} iterations"),
        f"{count(figures.epochs)} epoch{'s' * (figures.epochs != 1)}",
        f"{count(figures.samples)} samples in {duration(figures.seconds)}",
        measures(figures.final_measures),
        staleness(figures.staleness.p50, figures.staleness.p99),
    ]
    why = f" ({figures.reason})" if figures.reason else ""
    return f"complete{why}: {listed(parts)}"


def limit(reason: str) -> str:
    names = {field.alias for field in Stop.model_fields.values()}
    name = reason[:1].lower() + reason[1:]
    return f"spec.stop.{name}" if name in names else "spec.strategy"


def remaining(status: RunStatus) -> str:
    """The time that is left; a target, or a batch method's tolerances, may be met before limits."""
    left = status.training.estimated_remaining_seconds
    if left is None:
        return ""
    may_end_before = status.has_target or status.sandblaster is not None
    bound = "at most " if may_end_before and left > 0 else ""
    return f"{bound}{duration(left)} left"


def incarnation(incarnation: int) -> str:
    """Its number in this run or since a resume: `2`, `1 (resume 3)`."""
    resumes, number = divmod(incarnation, INCARNATIONS_PER_RUN)
    since = f" (resume {resumes})" if resumes else ""
    return f"{number}{since}" if incarnation else ""


def version_unit(status: RunStatus | None) -> str:
    """What the version of a shard counts: a batch method's coordinator gives commands to it."""
    return "commands" if status is not None and status.is_batch else "updates"


def _rate(status: RunStatus) -> str:
    """Of a job that is complete its mean, of one that trains the present one."""
    if status.phase == Result.COMPLETE:
        return known(status.mean_rate, "mean {:,.0f} samples/s")
    trains = status.phase in {"Running", "Draining"}
    return f"{count(status.training.samples_per_second or 0)} samples/s" if trains else ""


def _quality(status: RunStatus) -> str:
    """How good the model is: of a complete job's what it was measured with."""
    if status.final_loss is not None:
        of_test = [f"loss {status.final_loss:.4g}", measures(status.final_measures)]
        return f"test {listed(of_test)}"
    # Of a batch method the mean over the whole batch, which is no replica's recent loss.
    name = "objective" if status.is_batch else "training loss"
    loss = known(status.training.loss, f"{name} {{:.4g}}")
    latest = evaluated(status.training)
    return listed([loss, latest and f"test {latest}"], " · ")


def progress_line(status: RunStatus) -> str:
    found = status.training
    # What shards had acknowledged and lost as they died.
    lost = counted(status.updates_lost, "update")
    least = "" if status.updates_lost_is_exact else "at least "
    parts = [
        status.phase.lower() + (" (warm start)" if status.warm_start else ""),
        known(found.progress_percent, "{}%"),
        batch_method(status.sandblaster) if status.is_batch else "",
        f"epoch {found.epoch or 0:.2f}",
        f"{count(found.samples or 0)} samples",
        _rate(status),
        _quality(status),
        staleness(found.staleness_p50, found.staleness_p99),
        prediction_error(found.prediction_error),
        lost and f"{least}{lost} lost",
        counted(status.checkpoint_failures, "failed checkpoint"),
        counted(status.checkpoints_damaged, "damaged checkpoint"),
        remaining(status),
    ]
    return listed(parts, " · ")
