"""torch.distributed has two doors, through which no replica of one process goes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import disttrain

RUNTIME = Path(disttrain.__file__).parent
DOORS = {RUNTIME / "groups" / name for name in ("gloo.py", "sharding.py")}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


def test_nothing_else_imports_torch_distributed() -> None:
    found = {
        file
        for file in RUNTIME.rglob("*.py")
        if any(name.startswith("torch.distributed") for name in imported(file))
    }
    assert found == DOORS


def test_a_process_of_a_replica_does_not_open_the_door_before_its_group_forms() -> None:
    names = [f"disttrain.groups.{door.stem}" for door in DOORS]
    look = f"import disttrain.replica.server, sys; print(sys.modules.keys() & {names})"
    said = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == "set()"
