"""The keys of a job's processes, for whoever starts a job where strangers can reach it."""

from collections.abc import Callable

from disttrain.job import keys_file
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain.transport import keys


def make(new_pair: Callable[[], KeyPair] = keys.new_pair) -> dict[str, bytes]:
    """New keys: the contents of the keys files by name, as they lie in the job's Secret."""
    return keys_file.files({role: new_pair() for role in Role})
