"""What a batch method takes of a shard, for its metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchFigures:
    """Since the process started; zeros with other strategies."""

    staged_bytes: int = 0
    """Memory now of gradients that are not committed."""
    orders: int = 0
    """Carried out."""
    order_seconds: float = 0.0
    """Spent on them."""
