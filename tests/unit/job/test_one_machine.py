"""Which fields of a manifest mean nothing on one machine."""

from builders.jobs import a_job
from disttrain.job import support
from disttrain.job.finding import render


def named(*assignments: str) -> list[str]:
    return [render(path) for path in support.without_meaning(a_job(*assignments))]


def test_a_plain_job_means_all_that_it_says() -> None:
    assert named() == []


def test_fields_for_kubernetes_are_named_once_and_in_their_order() -> None:
    assert named(
        "spec.checkpoint.volume={size: 1Gi, storageClassName: nfs}",
        "spec.replicas.template.spec.nodeSelector={a: b}",
        "spec.suspend=true",
        "spec.ttlSecondsAfterFinished=0",
    ) == [
        "spec.checkpoint.volume",
        "spec.replicas.template",
        "spec.suspend",
        "spec.ttlSecondsAfterFinished",
    ]


def test_where_the_code_lies_on_a_cluster_is_not_missed_here() -> None:
    assert named("spec.task.source.configMap=code") == []


def test_a_default_that_is_written_out_is_not_named() -> None:
    assert named("spec.suspend=false", "spec.image=null", "spec.replicas.count=3") == []
