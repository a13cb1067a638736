"""What was decided: the entries, the state that is the fold of them, and what keeps them.

`journal.py`, `object_journal.py` and `owners.py` do I/O; the rest is pure. Why something is decided
is not here.
"""
