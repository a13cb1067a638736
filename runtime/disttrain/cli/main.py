"""Where the programs `disttrain` and `kubectl disttrain` begin."""

import sys

from disttrain.cli import app


def main() -> int:
    """Run the command line; returns its exit code."""
    return app.call("disttrain")


def plugin() -> int:
    """The same for kubectl, which finds `kubectl-disttrain` and calls it `kubectl disttrain`."""
    return app.call("kubectl disttrain")


def complete_plugin() -> int:
    """Completions for `kubectl disttrain`."""
    return app.complete(sys.argv[1:])
