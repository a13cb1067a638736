"""The Secret with one key pair per role, and what each role may know of the others' keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from disttrain.job import cluster_names, pod_layout
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object

CONNECTS_TO: Mapping[Role, tuple[Role, ...]] = {
    Role.COORDINATOR: (),
    Role.SHARD: (Role.COORDINATOR,),
    Role.REPLICA: (Role.COORDINATOR, Role.SHARD),
}
"""Whose listeners a role connects to."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A public key and its secret, in ZeroMQ's text form of 40 characters."""

    public: str
    secret: str


def secret_name(context: Context) -> str:
    """The Secret's name."""
    return cluster_names.keys_secret(context.name, context.uid)


def secret(context: Context, pairs: Mapping[Role, KeyPair]) -> Object:
    """The Secret; immutable, since processes that run already would not get other keys."""
    contents = {pod_layout.keys_key(role): _file(role, pairs) for role in Role}
    return context.new(Kind.Secret, secret_name(context), immutable=True, stringData=contents)


def _file(role: Role, pairs: Mapping[Role, KeyPair]) -> str:
    connecting = [other for other in Role if role in CONNECTS_TO[other]]
    content = {
        "public": pairs[role].public,
        "secret": pairs[role].secret,
        "listeners": {listener.value: pairs[listener].public for listener in CONNECTS_TO[role]},
        "allowed": {pairs[other].public: other.value for other in connecting},
    }
    return json.dumps(content)
