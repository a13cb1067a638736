"""Checkpoints: what is written of a job so that it can be continued, shown and exported.

Files, names, hashes and their manifest belong here; when to write one and what a shard copies for
it do not. No torch: the coordinator commits checkpoints and must stay small.
"""
