"""What the optimizer of a plain loop leaves behind when it cannot begin."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from torch import nn

from disttrain.launch import config as launch_config
from disttrain.replica import downpour, optimizer
from disttrain.replica.optimizer import DownpourOptimizer


def test_a_connection_that_cannot_begin_is_closed_before_the_membership(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = nn.Linear(2, 1)
    membership = MagicMock()
    connection = membership.connect.return_value
    connection.model.trainable = list(model.parameters())
    connection.first_fetch.side_effect = TimeoutError
    config = MagicMock()
    config.job.spec.replicas.count = 1
    monkeypatch.setattr(optimizer, "Membership", lambda _: membership)
    monkeypatch.setattr(launch_config, "read", lambda _: config)
    monkeypatch.setattr(optimizer, "JobAddress", SimpleNamespace(of=lambda _: None))
    monkeypatch.setattr(optimizer, "Downpour", MagicMock())
    monkeypatch.setattr(downpour, "from_spec", MagicMock())

    with pytest.raises(TimeoutError):
        DownpourOptimizer(model, tmp_path)

    assert membership.join.call_args.args[0].index is None
    names = [name for name, _, _ in membership.mock_calls]
    assert names.index("connect().close") < names.index("close")
