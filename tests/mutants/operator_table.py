"""Guards of the operator, each with what it is like without it and the tests that notice."""

from mutants.mutant import Mutant

_O = "operator/disttrain_operator"
_OPERATOR = "tests/unit/operator"
_CLIENT = "tests/integration/test_operator_client.py"
_OLDER = "if old is not None and old.uid == record.uid and old.version > record.version:"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="an older sight of a job by the operator",
        file=f"{_O}/observed/inventory.py",
        old=f"old = place.job\n        {_OLDER}",
        new="old = place.job\n        if False:",
        tests=(f"{_OPERATOR}/observed/test_inventory.py",),
    ),
    Mutant(
        name="an older sight of a child by the operator",
        file=f"{_O}/observed/inventory.py",
        old=f"old = children.get((record.kind, record.name))\n        {_OLDER}",
        new="old = children.get((record.kind, record.name))\n        if False:",
        tests=(f"{_OPERATOR}/observed/test_inventory.py",),
    ),
    Mutant(
        name="an older sight of a pod by the operator",
        file=f"{_O}/observed/inventory.py",
        old=f"old = pods.get(record.name)\n        {_OLDER}",
        new="old = pods.get(record.name)\n        if False:",
        tests=(f"{_OPERATOR}/observed/test_inventory.py",),
    ),
    Mutant(
        name="an operator that drops what is made while it lists",
        file=f"{_O}/reconcile/relist.py",
        old="        before = set(self._inventory.versions(query.kind, query.namespace))\n"
        "        listed, version = await self._take_in(query, self._changed)\n",
        new="        listed, version = await self._take_in(query, self._changed)\n"
        "        before = set(self._inventory.versions(query.kind, query.namespace))\n",
        tests=(f"{_OPERATOR}/reconcile/test_relist.py",),
    ),
    Mutant(
        name="an operator that takes back what goes while it lists",
        file=f"{_O}/reconcile/relist.py",
        old="if uid not in gone_meanwhile:",
        new="if True:",
        tests=(f"{_OPERATOR}/reconcile/test_relist.py",),
    ),
    Mutant(
        name="an operator that keeps versions of before a restore",
        file=f"{_O}/reconcile/relist.py",
        old="self._inventory.forget_versions(query.kind)",
        new="pass",
        tests=(f"{_OPERATOR}/reconcile/test_relist.py",),
    ),
    Mutant(
        name="an operator that believes a Lease for ever",
        file=f"{_O}/policies/leases.py",
        old="float(max(1, min(told, LONGEST_SECONDS)))",
        new="float(told)",
        tests=(f"{_OPERATOR}/policies/test_leases.py",),
    ),
    Mutant(
        name="an operator that scales anybody's Deployment",
        file=f"{_O}/reconcile/act.py",
        old="if not _is_owned(found, job):",
        new="if False:",
        tests=("tests/simulation/operator/test_objects.py",),
    ),
    Mutant(
        name="an operator that takes stored objects in pieces",
        file=f"{_O}/manifests/stored.py",
        old="all(map(_is_whole, made))",
        new="True",
        tests=(f"{_OPERATOR}/manifests/test_stored.py",),
    ),
    Mutant(
        name="an operator that never asks why shards are missing",
        file=f"{_O}/reconcile/plan.py",
        old="    actions += _ask_why(situation, outcome)\n",
        new="",
        tests=(f"{_OPERATOR}/reconcile/test_reconciler.py",),
    ),
    Mutant(
        name="an operator that writes to another job of the name",
        file=f"{_O}/reconcile/act.py",
        old='metadata = {"uid": job.uid, "annotations": {action.name: action.value}}',
        new='metadata = {"annotations": {action.name: action.value}}',
        tests=(f"{_OPERATOR}/reconcile/test_act.py",),
    ),
    Mutant(
        name="an operator that scales another workload of the name",
        file=f"{_O}/reconcile/act.py",
        old='return {"metadata": {"uid": action.uid}, "spec": dict(action.spec)}',
        new='return {"spec": dict(action.spec)}',
        tests=(f"{_OPERATOR}/reconcile/test_act.py",),
    ),
    Mutant(
        name="an operator that makes workloads before what they name",
        file=f"{_O}/reconcile/act.py",
        old="return next((wave for wave in _WAVES if kind in wave), ())",
        new="return ()",
        tests=(f"{_OPERATOR}/reconcile/test_act.py",),
    ),
    Mutant(
        name="an operator that lives without its workers",
        file=f"{_O}/operator.py",
        old="return self._workers.is_alive(_STALLED) and self._follower.is_alive(_DEAF)",
        new="return self._follower.is_alive(_DEAF)",
        tests=(f"{_OPERATOR}/test_operator.py",),
    ),
    Mutant(
        name="workers of the operator that are always alive",
        file=f"{_O}/reconcile/worker.py",
        old="return self._now() - self._last_turn < within.total_seconds()",
        new="return True",
        tests=(f"{_OPERATOR}/reconcile/test_worker.py",),
    ),
    Mutant(
        name="an operator that serves at no port",
        file=f"{_O}/settings.py",
        old="if not text.isdecimal() or int(text) > 65535:",
        new="if not text.isdecimal():",
        tests=(f"{_OPERATOR}/test_settings.py",),
    ),
    Mutant(
        name="an operator that ignores a file with its token",
        file=f"{_O}/cluster/credentials.py",
        old='token_file=folder / user["tokenFile"] if "tokenFile" in user else None,',
        new="token_file=None,",
        tests=(f"{_OPERATOR}/cluster/test_credentials.py",),
    ),
    Mutant(
        name="an operator that asks at half an IPv6 address",
        file=f"{_O}/cluster/credentials.py",
        old='bracketed = f"[{host}]" if ":" in host else host',
        new="bracketed = host",
        tests=(f"{_OPERATOR}/cluster/test_credentials.py",),
    ),
    Mutant(
        name="pods of the operator beyond the level by a null",
        file=f"{_O}/manifests/pod_security.py",
        old='if context.get("allowPrivilegeEscalation") is not False:',
        new='if context.get("allowPrivilegeEscalation"):',
        tests=(f"{_OPERATOR}/reconcile/test_templates.py",),
    ),
    Mutant(
        name="pods of the operator that may be root by a null",
        file=f"{_O}/manifests/pod_security.py",
        old='yield f"{inner}.runAsNonRoot must be true"',
        new="yield from ()",
        tests=(f"{_OPERATOR}/reconcile/test_templates.py",),
    ),
    Mutant(
        name="an operator that resumes half of a job with other templates",
        file=f"{_O}/reconcile/workloads.py",
        old="if others and others != stale:",
        new="if False:",
        tests=(f"{_OPERATOR}/reconcile/test_plan.py",),
    ),
    Mutant(
        name="an operator that calls old templates new",
        file=f"{_O}/reconcile/workloads.py",
        old="            return child.objects, child.templates\n",
        new="            return child.objects, target.digest\n",
        tests=(f"{_OPERATOR}/reconcile/test_plan.py",),
    ),
    Mutant(
        name="an operator that leaves connections to a slow API server open",
        file=f"{_O}/cluster/client.py",
        old="                    cut_what_is_left(response)\n",
        new="                    pass\n",
        tests=("tests/integration/test_operator_tls.py",),
    ),
    Mutant(
        name="an operator that keeps its first token",
        file=f"{_O}/cluster/client.py",
        old="if now - self._token_read_at >= _TOKEN_LIFE_SECONDS:",
        new="if self._token is None:",
        tests=(_CLIENT,),
    ),
    Mutant(
        name="an operator that deletes whatever has the name",
        file=f"{_O}/cluster/client.py",
        old='{"uid": uid} if version is None',
        new="{} if version is None",
        tests=(_CLIENT,),
    ),
    Mutant(
        name="an operator that deletes what has changed since",
        file=f"{_O}/cluster/client.py",
        old='else {"uid": uid, "resourceVersion": str(version)}',
        new='else {"uid": uid}',
        tests=(_CLIENT,),
    ),
    Mutant(
        name="an operator that waits for an answer for ever",
        file=f"{_O}/cluster/client.py",
        old="self._send(request, _USUAL)",
        new="self._send(request, aiohttp.ClientTimeout(total=None))",
        tests=(_CLIENT,),
    ),
    Mutant(
        name="an operator that waits for a watch for ever",
        file=f"{_O}/cluster/client.py",
        old="self._send(request, _STREAM)",
        new="self._send(request, aiohttp.ClientTimeout(total=None))",
        tests=(_CLIENT,),
    ),
)
