"""Sandblaster (DistBelief 4.2): batch methods that a coordinator drives without seeing a vector.

A method is pure: answers in, commands on named vectors out; its state is plain values that can be
written as JSON at any time. What shards do with their part of each vector is in `vectors`. Neither
torch nor a socket belongs here.
"""
