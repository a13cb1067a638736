"""The update rules that a manifest can choose, one module each; `job.strategies` finds them here.

A new rule is a module here and one of the same name in `parameter_server.update_rules`, and what
`make generate` writes. Nothing else names it.
"""
