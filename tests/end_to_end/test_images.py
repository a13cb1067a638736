"""Images that the tests build themselves run in the cluster."""

from pathlib import Path

import pytest

from builders import pods, product_images
from cluster import Kubectl, images
from cluster.hooks import Hooks

pytestmark = pytest.mark.landing

TAG = "test.disttrain.dev/greeting:1"
CONTAINERFILE = """
ARG BASE
FROM ${BASE}
COPY greeting.py /greeting.py
USER 1000:1000
ENTRYPOINT ["python3", "/greeting.py"]
"""


@pytest.fixture(scope="session")
def base_image(image_tools: Hooks) -> str:
    return images.base()


def greeting(folder: Path, base: str, words: str) -> images.Recipe:
    (folder / "Containerfile").write_text(CONTAINERFILE)
    (folder / "greeting.py").write_text(f"print({words!r})\n")
    file = folder / "Containerfile"
    return images.Recipe(containerfile=file, context=folder, tag=TAG, arguments={"BASE": base})


def test_a_pod_runs_an_image_that_was_just_built(
    base_image: str, hooks: Hooks, namespace: Kubectl, tmp_path: Path
) -> None:
    product_images.build_and_load(hooks, greeting(tmp_path, base_image, "first"))
    assert output_of(namespace, "one") == "first\n"

    product_images.build_and_load(hooks, greeting(tmp_path, base_image, "second"))
    assert output_of(namespace, "two") == "second\n"


def test_an_unchanged_image_keeps_its_identity(base_image: str, tmp_path: Path) -> None:
    recipe = greeting(tmp_path, base_image, "same")

    assert images.build(recipe) == images.build(recipe) == images.identity(TAG)


@pytest.mark.nightly
def test_the_runtime_reaches_object_stores_without_another_image(
    runtime_image: str, namespace: Kubectl
) -> None:
    find = "from fsspec import get_filesystem_class as find; print(find('s3'), find('gs'))"
    command = ["/opt/disttrain/bin/python", "-P", "-W", "error", "-c", find]

    found = output_of(namespace, "stores", runtime_image, command)

    assert "s3fs." in found
    assert "gcsfs." in found


def output_of(
    namespace: Kubectl, name: str, tag: str = TAG, command: list[str] | None = None
) -> str:
    pod = pods.restricted(name)
    pod["spec"]["restartPolicy"] = "Never"
    container = pod["spec"]["containers"][0]
    # Without a command of the pod the image's own is run.
    container |= {"image": tag, "command": command}
    namespace.apply(pod)
    namespace.wait_until("jsonpath={.status.phase}=Succeeded", f"pod/{name}")
    return namespace.run("logs", name)
