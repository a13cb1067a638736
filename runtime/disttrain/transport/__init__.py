"""Messages made of a header and a payload, over TCP, shared memory, or in memory.

What a message means is decided above: here it is carried, or refused where it is not well formed.
"""
