"""Manifests and jobs in which a test says only what matters to it."""

import json
from typing import Any

import yaml

from disttrain.job.finding import InvalidManifest
from disttrain.job.parsing import parse_job
from disttrain.job.spec import DistTrainJob

SMALL = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: digits}
spec:
  task: {entrypoint: digits:Digits}
  strategy:
    downpour:
      optimizer: {sgd: {learningRate: 0.1}}
  batchSize: 32
  stop: {epochs: 1}
"""
"""The shortest manifest: everything that is required, and nothing else."""


def a_job(*assignments: str) -> DistTrainJob:
    """Return the small job after assignments: `a_job("spec.replicas.count=3")`."""
    return parse_job(SMALL, assignments=assignments)


_SPEC = json.dumps(yaml.safe_load(SMALL)["spec"])


def a_spec(**changed: Any) -> dict[str, Any]:
    """The small job's spec, with 8 samples in a batch, or with other fields."""
    return {**json.loads(_SPEC), "batchSize": 8, **changed}


BATCH = """\
apiVersion: disttrain.dev/v1alpha1
kind: DistTrainJob
metadata: {name: digits}
spec:
  task: {entrypoint: digits:Digits}
  strategy:
    sandblaster:
      optimizer: {lbfgs: {}}
  stop: {iterations: 10}
"""
"""The shortest manifest of a batch method."""


def a_batch_job(*assignments: str) -> DistTrainJob:
    """Return the small job of a batch method after assignments."""
    return parse_job(BATCH, assignments=assignments)


def edited(old: str, new: str) -> str:
    """Return the small manifest with another text in place of `old`, which must be there."""
    assert old in SMALL
    return SMALL.replace(old, new)


def complaints(text: str, *assignments: str) -> list[str]:
    """Return what is said about a manifest, one line for each mistake; empty for a good one."""
    try:
        parse_job(text, assignments=assignments)
    except InvalidManifest as error:
        return str(error).splitlines()
    return []
