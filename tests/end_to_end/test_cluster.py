"""The test cluster itself: does it behave as a Kubernetes does?"""

import pytest

from builders import pods
from cluster import Cluster, Kubectl, commands
from cluster.errors import CommandFailed

pytestmark = [pytest.mark.usefixtures("own_cluster"), pytest.mark.nightly]
RESTARTS = "{.status.containerStatuses[0].restartCount}"
POD_ADDRESS = "{.status.podIP}"
READY = '{.status.conditions[?(@.type=="Ready")].status}'


def start(namespace: Kubectl, name: str, *command: str) -> None:
    namespace.apply(pods.restricted(name, *command))
    namespace.wait_until("Ready", f"pod/{name}")


def test_a_node_is_ready(kubectl: Kubectl) -> None:
    nodes = kubectl.items("nodes")

    assert [
        condition["status"]
        for node in nodes
        for condition in node["status"]["conditions"]
        if condition["type"] == "Ready"
    ] == ["True"] * len(nodes)
    assert nodes


def test_a_pod_runs_under_the_restricted_level_and_its_log_is_read(namespace: Kubectl) -> None:
    namespace.apply(pods.restricted("talker", "sh", "-c", "id -u; exec sleep 1000"))
    namespace.wait_until("Ready", "pod/talker")

    commands.wait_until(
        lambda: namespace.run("logs", "talker") == f"{pods.SOME_USER}\n", "the pod's log"
    )


def test_a_pod_that_asks_for_more_is_refused(namespace: Kubectl) -> None:
    pod = pods.restricted("greedy")
    pod["spec"]["hostNetwork"] = True

    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        namespace.apply(pod)


def test_a_command_runs_in_a_pod(namespace: Kubectl) -> None:
    start(namespace, "host")

    assert namespace.run("exec", "host", "--", "echo", "inside") == "inside\n"


def test_the_name_of_a_headless_service_is_its_pods_address(namespace: Kubectl) -> None:
    start(namespace, "named")
    start(namespace, "asking")
    namespace.apply(pods.headless_service("names", pod="named"))
    address = namespace.read("pod", "named", POD_ADDRESS)
    full_name = f"names.{namespace.namespace}.svc.cluster.local"

    def resolves() -> bool:
        lookup = ("exec", "asking", "--", "nslookup", full_name)
        try:
            return f"Address: {address}\n" in namespace.run(*lookup)
        except CommandFailed:
            return False

    commands.wait_until(resolves, f"{full_name} resolves to {address}")


def test_a_pod_reaches_the_api_server_through_its_service(namespace: Kubectl) -> None:
    start(namespace, "caller")

    script = r"printf 'GET / HTTP/1.0\r\n\r\n' | nc -w 5 kubernetes.default 443"

    def answers() -> bool:
        try:
            answer = namespace.run("exec", "caller", "--", "sh", "-c", script)
        except CommandFailed:
            return False
        # There is no TLS in this image; that it is missed shows who answers.
        return "Client sent an HTTP request to an HTTPS server" in answer

    commands.wait_until(answers, "the API server answers")


def test_a_killed_container_is_restarted(own_cluster: Cluster, namespace: Kubectl) -> None:
    start(namespace, "mortal")

    own_cluster.kill_container(namespace.namespace, "mortal", "main")

    namespace.wait_until("jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/mortal")


def test_a_pod_writes_to_a_shared_volume_as_its_own_group(namespace: Kubectl) -> None:
    script = "echo kept > /data/file; cat /data/file; exec sleep 1000"
    pod = pods.mounting(pods.restricted("writer", "sh", "-c", script), "data", "/data")
    namespace.apply(pods.claim("data"), pod)
    namespace.wait_until("Ready", "pod/writer")

    commands.wait_until(lambda: namespace.run("logs", "writer") == "kept\n", "the file's content")


@pytest.mark.alone
def test_pods_run_on_while_the_api_server_is_stopped(
    own_cluster: Cluster, namespace: Kubectl
) -> None:
    start(namespace, "steady")

    own_cluster.stop_api_server()
    try:
        assert namespace.read("pod", "steady", POD_ADDRESS) is None
    finally:
        own_cluster.start_api_server()

    assert namespace.read("pod", "steady", RESTARTS) == "0"


@pytest.mark.alone
def test_a_second_node_joins_and_goes(
    own_cluster: Cluster, kubectl: Kubectl, namespace: Kubectl
) -> None:
    node = own_cluster.add_node()
    pod = pods.restricted("elsewhere")
    pod["spec"]["nodeName"] = node.name
    namespace.apply(pod)
    namespace.wait_until("Ready", "pod/elsewhere")
    assert namespace.run("exec", "elsewhere", "--", "echo", "there") == "there\n"

    # That it may be lost, and come back, is shown by real_jobs/test_lost_node.py.
    assert kubectl.read("node", node.name, READY) == "True"
    own_cluster.remove_node(node)
    assert len(kubectl.items("nodes")) == 1
