"""The user's task: the class to extend, how it is found, and what is demanded of what it returns.

Nothing here knows about processes, shards or messages.
"""
