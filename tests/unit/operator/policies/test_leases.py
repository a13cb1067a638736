"""For how long a Lease is another's."""

from typing import Any

import pytest

from disttrain_operator.policies import leases


def lease(seconds: Any) -> dict[str, Any]:
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": seconds}
    return {"metadata": {"resourceVersion": "1"}, "spec": spec}


@pytest.mark.parametrize(
    ("told", "held"),
    [(20, 20), (1, 1), (2**31 - 1, 60), (-5, 1), (0, 20), (None, 20), ("always", 20)],
)
def test_a_lease_that_is_not_renewed_is_free_soon_whatever_stands_in_it(
    told: Any, held: float
) -> None:
    sight = leases.seen(None, lease(told), 100.0)

    assert leases.is_live(sight, 100.0 + held - 0.1)
    assert not leases.is_live(sight, 100.0 + held)
