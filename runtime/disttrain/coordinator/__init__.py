"""The coordinator: gives out work, watches the members and decides the end.

One process per job. Everything that decides is pure and runs in `tests/simulation` too; `process`
is the only package here that has a socket and a clock. No torch, and never a parameter
(DistBelief 4.2).
"""
