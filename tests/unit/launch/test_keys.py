"""The keys of a job: who may connect to whom."""

import subprocess
import sys

import pytest

from disttrain.launch import keys as job_keys
from disttrain.transport import keys
from disttrain.transport.errors import InvalidKeys
from disttrain.transport.header import Role


def test_each_role_has_a_pair_and_knows_only_whom_it_needs() -> None:
    made = {name: keys.parse(content) for name, content in job_keys.make().items()}
    assert set(made) == {"coordinator.json", "shard.json", "replica.json"}
    coordinator, shard, replica = (
        made[f"{role}.json"] for role in ("coordinator", "shard", "replica")
    )
    assert len({coordinator.secret, shard.secret, replica.secret}) == 3
    assert coordinator.allowed == {shard.public: Role.SHARD, replica.public: Role.REPLICA}
    assert shard.allowed == {replica.public: Role.REPLICA}
    assert replica.allowed == {}
    assert shard.listeners == {Role.COORDINATOR: coordinator.public}
    assert replica.listeners == {
        Role.COORDINATOR: coordinator.public,
        Role.SHARD: shard.public,
    }


def test_two_jobs_have_no_key_in_common() -> None:
    assert job_keys.make() != job_keys.make()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"public": "' + b"p" * 40 + b'", "secret": "short", "listeners": {}, "allowed": {}}',
        b'{"public": "p", "listeners": {}, "allowed": {}}',
        b'{"public": "p", "secret": "s", "listeners": {}, "allowed": {"short": "no role"}}',
    ],
)
def test_a_file_without_keys_is_refused_and_no_secret_is_shown(content: bytes) -> None:
    with pytest.raises(InvalidKeys) as raised:
        keys.parse(content)
    assert "short" not in str(raised.value)


def test_making_keys_needs_no_torch() -> None:
    code = "import disttrain.launch.keys, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
