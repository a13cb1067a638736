"""What an event leads to. Pure: the time is handed in, what is decided comes out as entries.

One transaction of the machine: who is a member, who gets work, what the members are told, when the
job ends. Runs in `tests/simulation` as it is.
"""
