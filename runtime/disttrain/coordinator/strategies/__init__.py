"""The coordinator's side of each strategy, and the only place that knows which ones there are."""
