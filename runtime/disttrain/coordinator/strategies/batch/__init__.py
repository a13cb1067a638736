"""Batch optimisation (DistBelief 4.2): work, commands and checkpoints of Sandblaster. No I/O."""
