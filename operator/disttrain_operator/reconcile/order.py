"""Which actions of a plan wait for which. Pure."""

from collections.abc import Sequence

from disttrain.job.names import Role
from disttrain_operator.kinds import Kind
from disttrain_operator.reconcile import actions
from disttrain_operator.reconcile.actions import Action

ONE_BY_ONE = (actions.Annotate, actions.CheckTemplates, actions.DeleteJob)
"""What others depend on, or what depends on all others."""

_RIGHTS = 1
_WAVE_OF = {Role.SHARD: 2, Role.REPLICA: 3, Role.COORDINATOR: 3}


def waves(steps: Sequence[Action]) -> list[list[Action]]:
    """Divide what is done together by what comes after what it names.

    Rights come after the account that gets them, workloads after what their pods are made with.
    """
    found: list[list[Action]] = [[], [], [], []]
    for each in steps:
        found[_wave(each)].append(each)
    return found


def _wave(action: Action) -> int:
    if not isinstance(action, actions.Create | actions.Renew):
        return 0
    if action.child.kind is Kind.RoleBinding:
        return _RIGHTS
    keeper = action.child.workload
    return 0 if keeper is None else _WAVE_OF[keeper.role]
