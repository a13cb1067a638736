"""The keys of a job's processes: one pair per role, and who may connect to whom.

Whoever starts a job where strangers can reach it makes them once, and gives each process only the
file of its role.
"""

from collections.abc import Callable

from disttrain.job import pod_layout
from disttrain.job.names import Role as JobRole
from disttrain.transport import keys
from disttrain.transport.config import CurveKeys
from disttrain.transport.header import Role
from disttrain.transport.keys import KeyPair

_MEMBERS = (Role.SHARD, Role.REPLICA)
_CONNECT_TO = {
    Role.COORDINATOR: (),
    Role.SHARD: (Role.COORDINATOR,),
    Role.REPLICA: (Role.COORDINATOR, Role.SHARD),
}
"""Whose listeners a role connects to."""


def make(new_pair: Callable[[], KeyPair] = keys.new_pair) -> dict[str, bytes]:
    """New keys: the contents of the keys files by name, as they lie in the job's Secret."""
    pairs = {role: new_pair() for role in (Role.COORDINATOR, *_MEMBERS)}
    return {
        pod_layout.keys_key(JobRole[role.name]): keys.encode(_of(role, pairs)) for role in pairs
    }


def _of(role: Role, pairs: dict[Role, KeyPair]) -> CurveKeys:
    connecting = [other for other in pairs if role in _CONNECT_TO[other]]
    return CurveKeys(
        public=pairs[role].public,
        secret=pairs[role].secret,
        listeners={listener: pairs[listener].public for listener in _CONNECT_TO[role]},
        allowed={pairs[other].public: other for other in connecting},
    )
