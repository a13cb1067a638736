"""Messages made of a header and a payload, over TCP or shared memory; the only package that imports zmq.

What a message means is decided above: here it is only carried, and refused where it is not well formed.
"""
