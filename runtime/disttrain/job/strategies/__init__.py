"""The strategies that a manifest can choose, one module each; `job.spec` finds them here.

A new strategy is a module here, one in `coordinator.strategies` and one in `replica.strategies`,
and what `make generate` writes. One with shards has its kind of shard in `parameter_server`, and
one with rules about other sections has a module in `job.rules`.
"""
