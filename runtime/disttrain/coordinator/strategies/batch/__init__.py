"""Batch optimisation (DistBelief 4.2): work, orders and checkpoints of Sandblaster. No I/O."""
