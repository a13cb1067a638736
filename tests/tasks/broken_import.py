"""Imports a module that nobody has."""

import a_module_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401

import disttrain


class Task(disttrain.Task):
    """Never defined: the import before it fails."""
