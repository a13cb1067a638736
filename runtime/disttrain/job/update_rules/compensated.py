"""Any rule, on gradients that are compensated for their delay: of `staleness.delayCompensation`."""

from disttrain.job.section import NotNegative, Positive, Section
from disttrain.job.update_rule import UpdateRule

MEAN_SQUARE, CURVATURE = "mean_square", "curvature"


class Adaptive(Section):
    """A strength for each parameter: strength over the root of a running mean of squares."""

    mean_square_decay: NotNegative = 0.95
    """Fraction of the mean of squared gradients that is kept per update; below 1."""

    epsilon: Positive = 1e-7
    """Added to the mean before the root is taken."""

    def problem(self) -> str | None:
        if self.mean_square_decay < 1:
            return None
        return f"meanSquareDecay must be below 1, got {self.mean_square_decay:g}"


class Compensated(UpdateRule):
    """What it keeps, and how it counts, is what the other rule does."""

    is_chosen = False
    pushed = (CURVATURE,)

    inner: UpdateRule
    """Applied to the compensated gradients."""

    strength: Positive
    adaptive: Adaptive | None

    @classmethod
    def of(cls, inner: UpdateRule, strength: float, adaptive: Adaptive | None) -> "Compensated":
        shared = {name: getattr(inner, name) for name in UpdateRule.model_fields}
        return cls(**shared, inner=inner, strength=strength, adaptive=adaptive)

    @property
    def name(self) -> str:  # type: ignore[override]  # Of the inner rule, as all that follows.
        return self.inner.name if self.adaptive is None else f"adaptive_{self.inner.name}"

    @property
    def kept(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.kept if self.adaptive is None else (*self.inner.kept, MEAN_SQUARE)

    @property
    def serves(self) -> str | None:  # type: ignore[override]
        return self.inner.serves

    @property
    def zero_is_a_step(self) -> bool:  # type: ignore[override]
        return self.inner.zero_is_a_step

    @property
    def counts_steps(self) -> bool:  # type: ignore[override]
        return self.inner.counts_steps

    @property
    def decays_gradients(self) -> bool:  # type: ignore[override]
        return self.inner.decays_gradients

    @property
    def initial_state(self) -> dict[str, float]:
        return dict.fromkeys(self.kept, 0.0) | self.inner.initial_state

    @property
    def local_learning_rate(self) -> float:
        return self.inner.local_learning_rate

    def hasty_beginning(self, replicas: int) -> str | None:
        return self.inner.hasty_beginning(replicas)
