"""An asynchronous run once more, in one process: real parts, driven by the record of the run.

No sockets, and threads that take turns: what the shards applied and gave out, and what the replicas
adopted, happens in the logged order. `recording` reads, `replayed_run` drives, `outcome` tells what
came out.
"""
