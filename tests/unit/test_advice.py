"""Pages that advise are complete and true: what exists is named, what is shown is accepted."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from pydantic.alias_generators import to_camel

from builders.operator_jobs import context, job
from disttrain.coordinator.phases import FailureReason
from disttrain.job.names import Role
from disttrain.job.parsing import parse_job
from disttrain.job.strategies.downpour import Optimizer
from disttrain.launch.exit_code import ExitCode
from disttrain_operator.manifests.config import DefaultVolume, ManifestConfig, PodSecurity
from disttrain_operator.manifests.pod import pod_template
from disttrain_operator.manifests.pod_security import violations
from disttrain_operator.observed.records import OperatorReason
from disttrain_operator.policies.problem import ProblemType
from disttrain_operator.reconcile import desired

DOCS: Final = Path(__file__).parents[2] / "docs"
TROUBLESHOOTING: Final = (DOCS / "troubleshooting.md").read_text()
IS_IT_FOR_ME: Final = (DOCS / "is_it_for_me.md").read_text()
DATA_AND_GPUS: Final = (DOCS / "data_and_gpus.md").read_text()


def manifests(page: str) -> list[dict[str, Any]]:
    found = re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [yaml.safe_load(text) for text in found]


SHOWN: Final = [manifest["spec"] for manifest in manifests(DATA_AND_GPUS)]
WITH_A_VOLUME: Final = ManifestConfig(default_volume=DefaultVolume())


@pytest.mark.parametrize("word", [*FailureReason, *OperatorReason, *ProblemType])
def test_every_reason_has_its_trouble(word: str) -> None:
    assert f"`{word}`" in TROUBLESHOOTING


@pytest.mark.parametrize("code", sorted(set(ExitCode) - {ExitCode.USAGE}))
def test_every_exit_code_of_a_process_has_its_trouble(code: ExitCode) -> None:
    assert re.search(rf"^\| {code.value}\b", TROUBLESHOOTING, re.MULTILINE)


def test_every_update_rule_is_named_to_who_asks_whether_it_suits() -> None:
    (line,) = (each for each in IS_IT_FOR_ME.splitlines() if each.startswith("| update rules"))
    assert set(re.findall(r"`(\w+)`", line)) == set(map(to_camel, Optimizer.model_fields))


@pytest.mark.parametrize("spec", SHOWN, ids=range(len(SHOWN)))
def test_templates_that_are_shown_are_allowed_at_the_strictest_level(spec: dict[str, Any]) -> None:
    assert desired.of(job(**spec), WITH_A_VOLUME).problems == ()


def test_the_pod_that_reads_a_claim_is_allowed_at_the_strictest_level() -> None:
    page = (DOCS / "kubernetes.md").read_text()
    (pod,) = (each for each in manifests(page) if each.get("kind") == "Pod")
    assert violations(pod, PodSecurity.RESTRICTED) == []


def test_data_are_mounted_where_the_task_looks_for_them() -> None:
    first, *_ = SHOWN
    pod = pod_template(context(WITH_A_VOLUME, **first), Role.REPLICA)["spec"]
    (container,) = pod["containers"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "data")
    assert mount["mountPath"] == first["task"]["arguments"]["data"]
    assert "data" in {each["name"] for each in pod["volumes"]}
    assert "/tmp" in {each["mountPath"] for each in container["volumeMounts"]}


def test_a_gpu_is_asked_for_by_each_replica_alone() -> None:
    (spec,) = (each for each in SHOWN if "nvidia.com/gpu" in str(each))
    by_role = {
        role: pod_template(context(WITH_A_VOLUME, **spec), role)["spec"]["containers"][0]
        for role in Role
    }
    asking = [role for role, each in by_role.items() if "nvidia.com/gpu" in str(each["resources"])]
    assert asking == [Role.REPLICA]
    assert by_role[Role.REPLICA]["resources"]["requests"]["memory"] == "32Gi"


def test_the_example_of_sizing_has_the_rate_that_its_text_derives_from_the_default() -> None:
    *_, sized = SHOWN
    manifest: dict[str, Any] = {"apiVersion": "disttrain.dev/v1alpha1", "kind": "DistTrainJob"}
    manifest |= {"metadata": {"name": "sized"}}
    plain = sized | {"strategy": {"downpour": {}}}
    ours, default = (
        parse_job(yaml.safe_dump(manifest | {"spec": spec})).spec.strategy.downpour
        for spec in (sized, plain)
    )
    assert ours is not None
    assert default is not None
    rule, usual = ours.optimizer.adagrad, default.optimizer.adagrad
    assert rule.learning_rate == usual.learning_rate * ours.push_every**0.5
    assert rule.initial_accumulator == usual.initial_accumulator
    assert rule.schedule.linear_warmup.samples == 32 * sized["batchSize"]
