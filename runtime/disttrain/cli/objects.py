"""Objects of a cluster in the forms that kubectl gives them. Pure."""

import json
from collections.abc import Sequence
from typing import Final

from disttrain.cli.cluster_options import Output
from disttrain.cluster.interface import Object
from disttrain.cluster.resources import JOBS
from disttrain.job import document

_INDENT: Final = 4


def text(objects: Sequence[Object], output: Output) -> str:
    """One object, or several as a List; without the notes of who wrote which field."""
    if output is Output.NAME:
        return "\n".join(named(each["metadata"]["name"]) for each in objects)
    shown = [_without_managers(each) for each in objects]
    several = {"apiVersion": "v1", "kind": "List", "items": shown}
    whole: Object = shown[0] if len(shown) == 1 else several
    if output is Output.JSON:
        return json.dumps(whole, indent=_INDENT, ensure_ascii=False)
    return document.write(whole).rstrip("\n")


def named(job: str) -> str:
    return f"{JOBS.word}/{job}"


def _without_managers(found: Object) -> Object:
    kept = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": kept}
