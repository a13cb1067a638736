"""The outer rules that a manifest can choose for local steps, one module each.

A new rule is a module here and one in `parameter_server.outer_rules`, and what `make generate`
writes.
"""
