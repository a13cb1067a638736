"""Messages made of a header and a payload, over TCP or shared memory. Only here is zmq imported.

What a message means is decided above: here it is carried, or refused where it is not well formed.
"""
