"""Whether a run kept its promises: pure checks over its processes' logs, one file per promise.

`reading` is the only file here that touches the disk.
"""
