"""The rights that the chart grants, for an operator that is a process of this machine."""

from dataclasses import replace

from builders import helm
from cluster import Kubectl, commands, kubeconfigs
from cluster.errors import CommandFailed

_RULES = {"ClusterRole", "ClusterRoleBinding"}


def grant(administrator: Kubectl) -> Kubectl:
    """Grant them; returns kubectl as the chart's service account.

    An administrator would be asked less: the API server looks at none of its rights, and lets it
    make roles without looking at what they give.
    """
    made = [each for each in helm.rendered({}) if each["kind"] in _RULES]
    administrator.apply(*made)
    (subject,) = next(each["subjects"] for each in made if "subjects" in each)
    user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    kubeconfig = kubeconfigs.make("operator", user, "system:serviceaccounts")
    operator = replace(administrator, kubeconfig=kubeconfig)
    commands.wait_until(lambda: _holds(operator), "the API server knows of the rights")
    return operator


def _holds(operator: Kubectl) -> bool:
    try:
        return operator.run("auth", "can-i", "create", "rolebindings").strip() == "yes"
    except CommandFailed:
        return False
