"""Folders with a task as a user writes it, each with a module name that no other test has."""

from itertools import count
from pathlib import Path

_numbers = count()

HEADER = """\
import disttrain
from torch import nn

"""

COMPLETE = (
    HEADER
    + """
class Complete(disttrain.Task):
    def __init__(self, hidden: int = 4, *, depth: int = 1) -> None:
        self.hidden, self.depth = hidden, depth
    def model(self):
        return nn.Linear(1, self.hidden)
    def dataset(self, split):
        return list(range(10))
    def loss(self, model, batch):
        return model(batch).mean()
"""
)


def a_module(folder: Path, text: str = COMPLETE) -> str:
    """Write a module and return its name, `user_task_N`."""
    name = f"user_task_{next(_numbers)}"
    (folder / f"{name}.py").write_text(text)
    return name
