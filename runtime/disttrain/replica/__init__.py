"""A replica: one copy of the model that processes data, pushes gradients and fetches parameters.

Here belong the training loop with the threads beside it, the data pipeline, evaluation, and what
joins an existing training loop to a parameter server. What shards and the coordinator decide does
not.
"""
