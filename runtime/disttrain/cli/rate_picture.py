"""The learning rate over a run in one line of text. Pure."""

from disttrain.job import defaults
from disttrain.job import length as lengths
from disttrain.job.length import Extent
from disttrain.job.schedule_kinds import Factor
from disttrain.job.spec import Spec

_COLUMNS = 48
_HEIGHTS = "▁▂▃▄▅▆▇█"


def line(spec: Spec) -> str | None:
    """The rate of a job's first stage; None: it stays, or the manifest alone does not tell it."""
    stage = defaults.first_stage(spec)
    planned = stage.strategy.rule.planned_rate
    if planned is None:
        return None
    full, schedule = planned
    if schedule.constant is not None and schedule.warmup is None:
        return None
    for run in lengths.without_data(stage.stop, defaults.samples_per_step(stage)):
        try:
            rates = schedule.rates(run)
        except ValueError:
            continue
        if run.samples is not None:
            of_what = "" if stage is spec else "of the warm start "
            return _line(rates, run.samples, f"{of_what}over {_length(run)}", full)
    return None


def _length(run: Extent) -> str:
    unit = "epoch" if run.counts_epochs else "sample"
    return f"{run.samples:,} {unit}{'' if run.samples == 1 else 's'}"


def _line(rates: Factor, end: int, when: str, full: float) -> str:
    factors = [rates(end * column / (_COLUMNS - 1)) for column in range(_COLUMNS)]
    # The columns may miss where the full rate is reached, and steps may go above it.
    most = max(1.0, *factors)
    bars = "".join(_HEIGHTS[round(factor / most * (len(_HEIGHTS) - 1))] for factor in factors)
    first, last = full * factors[0], full * factors[-1]
    return f"learning rate {when}: {first:g} {bars} {last:g}, at most {full * most:g}"
