"""The Secret with the manifest and one key pair per role."""

from collections.abc import Mapping

from disttrain.job import cluster_names, keys_file, pod_layout
from disttrain.job.keys_file import KeyPair
from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.manifests.context import Context, Object


def secret_name(context: Context) -> str:
    return cluster_names.launch_secret(context.name, context.uid)


def secret(context: Context, pairs: Mapping[Role, KeyPair], launch: str) -> Object:
    """The Secret; immutable, since processes that run already would not get other keys.

    `launch`: the manifest as its processes read it.
    """
    contents = {name: content.decode() for name, content in keys_file.files(pairs).items()}
    contents[pod_layout.LAUNCH_KEY] = launch
    return context.new(Kind.Secret, secret_name(context), immutable=True, stringData=contents)
