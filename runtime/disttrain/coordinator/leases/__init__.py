"""Which samples of the data are given out, finished or lost. Pure: no clock, no file, no member.

The permutation, its portions, and the account of the leases over them.
"""
