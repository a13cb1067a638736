"""The arithmetic of the outer rules, one module each, as in `job.outer_rules`."""
