"""The parameter server: shards that hold parts of the model, and their client.

What decides is pure and has no torch: `deliveries`, the counts of `acknowledged`. What computes
has no socket: `update_rules`, `strategies`, `shard`. Only `server`, `serving` and the clients
know a transport.
"""
