"""Every Python program that finds this file first looks for strategies in another folder, too.

The variable MORE_STRATEGIES names it. It has a part for each of the product's three packages of
strategies, which searches that beside its own folder. Nothing is imported earlier than else.
"""

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class MoreStrategies(MetaPathFinder):
    """Finds the packages where they are, and adds to the paths that they search."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        product, _, side = fullname.removesuffix(".strategies").partition(".")
        if product != "disttrain" or not fullname.endswith(f".{side}.strategies"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(f"{os.environ['MORE_STRATEGIES']}/{side}")
        return spec


sys.meta_path.insert(0, MoreStrategies())
