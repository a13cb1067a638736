"""A job's objects as they were made first, kept with its workloads as text.

Whatever another version of the operator would make of the same job, what runs stays as it is, and
what is lost is made again from this text. Pure.
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from disttrain.job import cluster_labels
from disttrain.job.names import Role
from disttrain_operator import json_text
from disttrain_operator.kinds import CHILDREN, WORKLOADS, Kind
from disttrain_operator.manifests import children
from disttrain_operator.manifests.children import Child
from disttrain_operator.manifests.context import Context, Object

OBJECTS = "disttrain.dev/objects"
"""Annotation of a workload: all of the job's objects, compressed."""

TEMPLATES = "disttrain.dev/templates"
"""Annotation of a workload: a digest of the user's pod templates that it was made from."""

AUTHORITY = "disttrain.dev/authority"
"""Annotation of a workload: the fingerprint of the authority that the job's Secret names. At the
job itself it says the same of a Secret that was made again, and counts for all workloads."""

AUTHORITY_LENGTH = 64
"""Characters of a fingerprint."""

LONGEST_TEXT = 100_000
"""Characters of the text; annotations hold 256 KiB, and specs that are taken far less."""

_MOST_BYTES = 4 * 1024 * 1024
"""Of the objects of one job: annotations hold 256 KiB, and somebody may have written this one."""


@dataclass(frozen=True, slots=True)
class Objects:
    """All of a job's own objects; the scale of the workloads does not count.

    What keeps one replica of several processes stands for those of all replicas.
    """

    children: tuple[Child, ...]
    launch: str
    """The manifest as its processes read it."""


def pack(objects: Objects) -> str:
    """The text; `unpack` gives the same back."""
    content = {"launch": objects.launch, "objects": [each.body for each in objects.children]}
    return base64.b64encode(zlib.compress(json_text.write(content, in_order=True), 9)).decode()


def unpack(text: str) -> Objects | None:
    """What a text holds; None if it is not one that an operator wrote."""
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(base64.b64decode(text, validate=True), _MOST_BYTES)
        found = json_text.read(content)
        made = tuple(children.of(body) for body in found["objects"] if _is_known(body))
        launch = str(found["launch"])
        return Objects(made, launch) if all(map(_is_whole, made)) and _is_complete(made) else None
    except (binascii.Error, zlib.error, ValueError, LookupError, TypeError, AttributeError):
        return None


def is_strange(objects: Objects, context: Context) -> bool:
    return any(_is_strange(each, context) for each in objects.children)


def digest(templates: Sequence[Any]) -> str:
    return hashlib.sha256(json_text.write(list(templates), in_order=True)).hexdigest()[:16]


def marked(child: Child, text: str, templates: str, authority: str) -> Child:
    """A workload that keeps the text, and what else was so when it was made; others as they are."""
    if child.kind not in WORKLOADS:
        return child
    metadata = child.body["metadata"]
    annotations = {**metadata.get("annotations", {}), OBJECTS: text, TEMPLATES: templates}
    if authority:
        annotations[AUTHORITY] = authority
    body = {**child.body, "metadata": {**metadata, "annotations": annotations}}
    return replace(child, body=body)


def _is_known(body: Object) -> bool:
    """Whether this version makes such objects: a later one may have had others too."""
    return body["kind"] in {kind.name for kind in CHILDREN}


def _is_complete(made: Sequence[Child]) -> bool:
    """Whether something keeps the pods of each role."""
    keepers = [each.workload for each in made]
    return {keeper.role for keeper in keepers if keeper is not None}.issuperset(Role)


def _is_strange(child: Child, context: Context) -> bool:
    expected = context.new(child.kind, child.name)["metadata"]
    found = child.body["metadata"]
    owner = found.get("ownerReferences", expected["ownerReferences"])
    same_place = found.get("namespace") == context.namespace
    # By these alone the object is seen again once it is made.
    labels = {**cluster_labels.managed(), cluster_labels.INSTANCE: context.name}
    is_found = labels.items() <= found.get("labels", {}).items()
    return not (same_place and is_found and owner == expected["ownerReferences"])


def _is_whole(child: Child) -> bool:
    """Whether an object has what is read of it. Raises LookupError, TypeError."""
    metadata = child.body["metadata"]
    mappings = [metadata["labels"], metadata.get("annotations", {})]
    texts = [child.name, metadata["namespace"]]
    if child.kind in WORKLOADS:
        pod = child.body["spec"]["template"]["spec"]
        mappings.append(pod)
        texts += [pod["serviceAccountName"]] if child.kind is Kind.Job else []
    are_texts = all(isinstance(each, str) and each for each in texts)
    return are_texts and all(isinstance(each, dict) for each in mappings)
