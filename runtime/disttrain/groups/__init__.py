"""How the processes of one group find each other and go in step.

The coordinator decides who is a member (`coordinator.decisions.joining`); members meet through it,
over the connection that they have, and then talk among themselves. `gloo` and `sharding` alone know
torch.distributed, and are imported by nobody whose group is one process.
"""
