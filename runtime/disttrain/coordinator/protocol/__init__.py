"""What members and the coordinator say to each other, and a member's side of it.

Types with limits that are checked before trust, the messages made of them, and the connection
that repeats a request until it is answered. What the coordinator thinks of a message is not here.
"""
