"""The keys that the operator makes are those that a process reads."""

from builders.operator_jobs import context
from disttrain.job import pod_layout
from disttrain.job.names import Role
from disttrain.launch import keys as launch_keys
from disttrain.transport import keys as transport_keys
from disttrain_operator import keys as new_keys
from disttrain_operator.manifests import keys


def test_a_process_reads_what_the_operator_writes() -> None:
    pairs = new_keys.new_pairs()
    files = keys.secret(context(), pairs, "{}")["stringData"]
    drawn = iter([pairs[role] for role in Role])

    expected = launch_keys.make(lambda: next(drawn))

    for role in Role:
        name = pod_layout.keys_key(role)
        found = transport_keys.parse(files[name].encode())
        assert found == transport_keys.parse(expected[name])
        assert found.public == pairs[role].public
