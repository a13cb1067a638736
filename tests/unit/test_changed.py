"""Which tests `make quick` runs for what changed."""

import pytest

from changed import ROOT, covering


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (["runtime/disttrain/transport/tcp.py"], ["tests/unit/transport"]),
        (
            ["runtime/disttrain/coordinator/decisions/machine.py"],
            ["tests/unit/coordinator/decisions"],
        ),
        (
            ["operator/disttrain_operator/reconcile/plan.py"],
            ["tests/simulation/operator", "tests/unit/operator/reconcile"],
        ),
        (
            ["runtime/disttrain/sandblaster/batch/programs.py"],
            ["tests/simulation/sandblaster", "tests/unit/sandblaster/batch"],
        ),
        (["development/disttrain_monitoring/query.py"], ["tests/unit/monitoring"]),
        (
            ["tests/unit/test_locks.py", "tests/integration/test_pods.py"],
            ["tests/unit/test_locks.py"],
        ),
        (["tests/unit/transport/test_gone.py", "README.md"], []),
        (
            ["runtime/disttrain/transport/tcp.py", "tests/unit/transport/test_framing.py"],
            ["tests/unit/transport"],
        ),
    ],
)
def test_a_change_is_tested_by_its_folders(changed: list[str], expected: list[str]) -> None:
    assert covering(changed, ROOT) == expected
