"""Dashboards, alerts and the list of metrics, made from code.

For development only: nothing that runs in a pod imports this, and no image holds it. The files that
it makes are committed; `make generate` writes them again and `make check` fails when they differ.
"""
