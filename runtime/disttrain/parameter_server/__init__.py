"""The parameter server: shards that hold parts of the model, and their client.

What decides is pure and has no torch: `layout`, `deliveries`, `schedule`. What computes has no
socket: `update_rules`, `buffers`, `values`, `snapshot`, `shard`. Only `server` and the clients
know a transport.
"""
