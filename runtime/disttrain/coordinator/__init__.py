"""The coordinator: gives out work, watches the members and decides the end.

One process per job. Everything that decides is pure and lies beside the tests in
`tests/simulation`: portions, membership, stop rules, the
machine that joins them. `server.py` is the only module here that has a socket, a clock and files.
No torch, and never a
parameter (DistBelief 4.2).
"""
