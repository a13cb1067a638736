"""The manifest of a job: its types, parsing, rules, names, schema and reference page.

No tensor, socket or process belongs here: the operator imports this package alone, so it needs
nothing but the standard library, pydantic and PyYAML.
"""
