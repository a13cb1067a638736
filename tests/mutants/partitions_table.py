"""Guards of replicas whose partitions have vectors of their own."""

from mutants.mutant import Mutant

_R = "runtime/disttrain"
_AGREEMENT = ("tests/unit/replica/test_agreement.py",)
_MOVES = ("tests/unit/state/test_moves.py",)

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        name="a new job that starts before anybody looks whether its model can be divided",
        file=f"{_R}/cli/run.py",
        old="    _require_divisible(job, task_folder)\n",
        new="",
        tests=(
            "tests/integration/test_indivisible_jobs.py::test_what_cannot_be_divided_is_refused",
        ),
    ),
    Mutant(
        name="values that have come to one partition, and that it takes over alone",
        file=f"{_R}/replica/client_threads.py",
        old="        if not self.agreement.all(result is not None):\n",
        new="        if result is None:\n",
        tests=_AGREEMENT,
    ),
    Mutant(
        name="a push of which one partition's shards know, and that counts",
        file=f"{_R}/replica/agreement.py",
        old="min(map(tuple, told))",
        new="max(map(tuple, told))",
        tests=_AGREEMENT,
    ),
    Mutant(
        name="a push that one partition's shards refuse, and after which the others push on",
        file=f"{_R}/replica/agreement.py",
        old="any(each[-1] for each in told)",
        new="all(each[-1] for each in told)",
        tests=_AGREEMENT,
    ),
    Mutant(
        name="samples that not all partitions' parameters have",
        file=f"{_R}/replica/agreement.py",
        old="min(each for (each,)",
        new="max(each for (each,)",
        tests=_AGREEMENT,
    ),
    Mutant(
        name="a shard that is told who the first process of a replica is, and no other",
        file=f"{_R}/coordinator/decisions/news.py",
        old="{replica.index: replica.instances for",
        new="{replica.index: (replica.instance,) for",
        tests=("tests/unit/coordinator/decisions/test_groups.py",),
    ),
    Mutant(
        name="a loss whose writes into a model without values are lost",
        file=f"{_R}/replica/task_calls.py",
        old="    if _changes(model) != before:\n",
        new="    if False:\n",
        tests=("tests/unit/replica/test_losses_of_partitions.py",),
    ),
    Mutant(
        name="parts that lie outside of the model's tensor",
        file=f"{_R}/state/layout.py",
        old="    if not _lies_inside(tensor):\n",
        new="    if False:\n",
        tests=("tests/unit/state/test_layout.py",),
    ),
    Mutant(
        name="a model of more partitions than the job's replicas have",
        file=f"{_R}/coordinator/decisions/joining.py",
        old="    if theirs.partitions > transaction.settings.partitions:\n",
        new="    if False:\n",
        tests=("tests/unit/coordinator/decisions/test_placing.py",),
    ),
    Mutant(
        name="values that have changed in the first partition alone",
        file=f"{_R}/replica/partitions.py",
        old="_SHARES * (part is self.part and self._has_changed),",
        new="0,",
        tests=("tests/unit/replica/test_evaluations_of_partitions.py",),
    ),
    Mutant(
        name="a file without a tensor that a partition needs",
        file=f"{_R}/replica/partition_values.py",
        old="    if lacking:\n",
        new="    if False:\n",
        tests=("tests/unit/replica/test_evaluations_of_partitions.py",),
    ),
    Mutant(
        name="steps that are in the logs of several partitions",
        file=f"{_R}/replica/ledger.py",
        old="        if record.kind in _ANSWERS:\n",
        new="        if True:\n",
        tests=("tests/unit/audit/test_logs_of_partitions.py",),
    ),
    Mutant(
        name="answers to one partition that no audit counts",
        file=f"{_R}/audit/reading.py",
        old="records=np.concatenate([each.records for each in files])",
        new="records=first.records",
        tests=("tests/unit/audit/test_logs_of_partitions.py",),
    ),
    Mutant(
        name="a layer of a divided model that computes by itself",
        file=f"{_R}/replica/partitions.py",
        old="            layer.register_forward_pre_hook(_has_no_values)\n",
        new="            pass\n",
        tests=("tests/unit/replica/test_losses_of_partitions.py",),
    ),
    Mutant(
        name="a shard that hears every process of a replica",
        file=f"{_R}/parameter_server/serving.py",
        old="partition = sender.partition if values is None else values.share.trained.partition",
        new="partition = sender.partition",
        tests=("tests/unit/parameter_server/test_serving.py",),
    ),
    Mutant(
        name="what two divisions have in common, counted as if rows were whole",
        file=f"{_R}/state/moves.py",
        old=" == spec.shape[each - 1] == other.shape[each - 1]",
        new=" == spec.shape[each - 1]",
        tests=_MOVES,
    ),
    Mutant(
        name="elements of a range that begin before it",
        file=f"{_R}/state/moves.py",
        old="first = max(new, wanted.first)",
        new="first = new",
        tests=_MOVES,
    ),
    Mutant(
        name="an audit that takes the processes of a replica for one",
        file="runtime/disttrain/audit/lost_updates.py",
        old="for shards in replica.shards if shards] or [there]",
        new="for shards in ()] or [there]",
        tests=("tests/unit/audit/test_promises.py",),
    ),
    Mutant(
        name="processes that go on, each from what it has pushed",
        file=f"{_R}/replica/stepper.py",
        old="self._pushes.go_on(self._answers)",
        new="self._pushes.go_on(self._pushes.answered)",
        tests=("tests/unit/replica/test_too_stale.py",),
    ),
    Mutant(
        name="samples that went back, and count where another process has pushed them",
        file=f"{_R}/audit/samples.py",
        old="for record in replica.of(ReplicaKind.HELD_BACK):",
        new="for record in ():",
        tests=("tests/unit/audit/test_too_stale.py",),
    ),
    Mutant(
        name="samples that went back, of a replica that died before it could say so",
        file=f"{_R}/audit/samples.py",
        old="again = back if evidence.last_run else _of(dead, back)",
        new="again = back if evidence.last_run else set()",
        tests=("tests/unit/audit/test_too_stale.py",),
    ),
    Mutant(
        name="numbers that are left out, of which shards hear by a refusal",
        file=f"{_R}/parameter_server/client.py",
        old="                link.greet_again()\n",
        new="                pass\n",
        tests=("tests/unit/parameter_server/test_left_out_numbers.py",),
    ),
    Mutant(
        name="a push that was held back, and is said to be lost",
        file=f"{_R}/audit/lost_updates.py",
        old="before - answered[shard] - held_back",
        new="before - answered[shard]",
        tests=("tests/unit/audit/test_too_stale.py",),
    ),
)
