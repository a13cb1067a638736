"""Each strategy that a manifest can choose has a side in every role that asks for one."""

import re

from disttrain.coordinator import strategies as coordinators
from disttrain.job.spec import KINDS, Strategy
from disttrain.replica import strategies as replicas


def test_every_strategy_has_a_name_and_both_sides() -> None:
    assert set(KINDS) == set(coordinators._SIDES) == set(replicas._TRAININGS)
    assert list(Strategy.model_fields) == [kind.name for kind in KINDS]
    for kind in KINDS:
        assert re.fullmatch("[a-z][a-z_]*", kind.name)
        assert kind.summary.endswith("."), "it stands in the manifest's reference"
