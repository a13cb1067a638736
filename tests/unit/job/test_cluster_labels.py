"""Labels: what is made is what is selected, and nobody else's."""

import pytest

from disttrain.job import cluster_labels
from disttrain.job.names import Role


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return selector.items() <= labels.items()


def test_labels_of_a_pod() -> None:
    assert cluster_labels.of_role("digits", "1-2", Role.SHARD) == {
        "app.kubernetes.io/name": "disttrain",
        "app.kubernetes.io/instance": "digits",
        "app.kubernetes.io/component": "shard",
        "app.kubernetes.io/managed-by": "disttrain-operator",
        "disttrain.dev/job-uid": "1-2",
    }


@pytest.mark.parametrize("role", Role)
def test_a_selector_takes_the_pods_of_its_role_alone(role: Role) -> None:
    selector = cluster_labels.pods_of("digits", "1", role)
    chosen = [one for one in Role if selects(selector, cluster_labels.of_role("digits", "1", one))]
    assert chosen == [role]


def test_a_selector_leaves_a_later_job_of_the_same_name_alone() -> None:
    later = cluster_labels.of_role("digits", "2", Role.SHARD)
    assert not selects(cluster_labels.pods_of("digits", "1", Role.SHARD), later)
    assert not selects(cluster_labels.all_pods("digits", "1"), later)


@pytest.mark.parametrize("role", Role)
def test_everything_of_a_job_is_found_by_the_watches(role: Role) -> None:
    labels = cluster_labels.of_role("digits", "1", role)
    assert selects(cluster_labels.all_pods("digits", "1"), labels)
    assert selects(cluster_labels.managed(), labels)
    assert selects(cluster_labels.managed(), cluster_labels.of_job("digits", "1"))


def test_a_selector_as_text_is_in_a_fixed_order() -> None:
    assert cluster_labels.selector_text({"b": "2", "a": "1"}) == "a=1,b=2"
