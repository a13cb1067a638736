"""The keys of a job's processes, for whoever starts a job where strangers can reach it."""

from collections.abc import Callable
from dataclasses import replace

from disttrain.job import keys_file
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain.transport import keys
from disttrain.transport.config import CurveKeys
from disttrain.transport.header import Role as TransportRole


def make(new_pair: Callable[[], KeyPair] = keys.new_pair) -> dict[str, bytes]:
    """New keys: the contents of the keys files by name, as they lie in the job's Secret."""
    return keys_file.files({role: new_pair() for role in Role})


def of_one_machine() -> dict[TransportRole, CurveKeys]:
    """New keys by who uses them; one is the launcher's, for its words to the coordinator."""
    pairs = {role: keys.new_pair() for role in Role}
    made = {TransportRole[role.name]: keys.of_file(keys_file.of_role(role, pairs)) for role in Role}
    launcher, coordinator = keys.new_pair(), made[TransportRole.COORDINATOR]
    allowed = coordinator.allowed | {launcher.public: TransportRole.LAUNCHER}
    return made | {
        TransportRole.COORDINATOR: replace(coordinator, allowed=allowed),
        TransportRole.LAUNCHER: CurveKeys(
            public=launcher.public,
            secret=launcher.secret,
            listeners={TransportRole.COORDINATOR: coordinator.public},
        ),
    }
