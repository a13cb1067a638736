"""What was decided: the entries, the state that is the fold of them, and the file that keeps them.

`journal.py` alone has a file; the rest is pure. Why something is decided is not here.
"""
