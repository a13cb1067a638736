"""A job in virtual time, before there are machines for it: `disttrain simulate`.

The task, the model, the data, the replicas' loops, the clients and the shards are production's.
Time is not: a step, a shard's work and a message take what is said of the machines.
"""
