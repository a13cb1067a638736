"""Messages made of a header and a payload, by TCP, shared memory or within a process. zmq is imported here alone.

What a message means is decided above: here it is carried, or refused where it is not well formed.
"""
