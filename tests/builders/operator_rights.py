"""The rights of whoever looks after jobs, for a process of this machine.

An administrator would be asked less: the API server looks at none of its rights, and lets it make
roles without looking at what they give.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from builders import helm
from cluster import Kubectl, commands, kubeconfigs
from cluster.errors import CommandFailed

_RULES = {"ClusterRole", "ClusterRoleBinding"}


def grant(administrator: Kubectl) -> Kubectl:
    """Grant what the chart grants the operator; returns kubectl as the chart's service account."""
    rules = [each for each in helm.rendered({}) if each["kind"] in _RULES]
    return take(administrator, rules, "operator")


def take(administrator: Kubectl, rules: Sequence[dict[str, Any]], name: str) -> Kubectl:
    """Apply roles and their bindings; returns kubectl as the service account that has them."""
    administrator.apply(*rules)
    subject = next(each["subjects"][0] for each in rules if "subjects" in each)
    user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    kubeconfig = kubeconfigs.make(name, user, "system:serviceaccounts")
    account = replace(administrator, kubeconfig=kubeconfig)
    commands.wait_until(lambda: _holds(account), "the API server knows of the rights")
    return account


def _holds(account: Kubectl) -> bool:
    # Whoever looks after jobs may do this.
    try:
        return account.run("auth", "can-i", "list", "pods", "--all-namespaces").strip() == "yes"
    except CommandFailed:
        return False
