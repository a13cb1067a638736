"""The arithmetic of the update rules, one module each, as in `job.update_rules`.

Fused kernels of torch read each value once.
"""
