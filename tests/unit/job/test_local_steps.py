"""Local steps in a manifest: what is refused before anything starts, by field."""

import inspect

import pytest
import torch
import yaml

from builders.jobs import a_job, complaints, edited
from disttrain.job import validation
from disttrain.job.finding import InvalidManifest, Severity
from disttrain.job.merged import merged_name
from disttrain.job.outer_rules.nesterov import Nesterov
from disttrain.job.strategies.downpour import UPDATE_RULES
from disttrain.job.strategies.local_steps import OUTER_RULES, Adopt, LocalSteps
from disttrain.job.torch_optimizers import ARGUMENTS, OptimizerName
from disttrain.job.update_rule import in_manifests

LOCAL = "spec.strategy={localSteps: {}}"
SGD = "downpour:\n      optimizer: {sgd: {learningRate: 0.1}}"
LEFT_OUT = {"maximize", "capturable", "differentiable"}
WANT_MORE = {"LBFGS", "SparseAdam", "Optimizer"}
"""A closure, sparse gradients, a class of its own."""


def said(settings: str) -> list[str]:
    job = edited(SGD, f"localSteps: {settings}")
    return [line.partition("spec.strategy.localSteps.")[2] for line in complaints(job)]


def findings(settings: str, *others: str) -> list[str]:
    """Errors and warnings."""
    value = yaml.safe_load(edited(SGD, f"localSteps: {settings}"))
    for assignment in others:
        path, _, text = assignment.partition("=")
        _, *around, last = path.split(".")
        section = value["spec"]
        for name in around:
            section = section.setdefault(name, {})
        section[last] = yaml.safe_load(text)
    place = ("spec", "strategy", "localSteps")
    return [
        f"{'.'.join(map(str, each.path[len(place) :]))}: {each.message}"
        for each in validation.validate(value).findings
        if each.path[: len(place)] == place
    ]


def test_everything_has_a_default() -> None:
    assert said("{}") == []
    assert said("{optimizer: {name: Rprop}}") == []


@pytest.mark.parametrize("adopt", Adopt)
def test_the_staleness_bound_is_ten_times_what_equal_replicas_cause(adopt: Adopt) -> None:
    assert LocalSteps(adopt=adopt).staleness_bound == 10
    assert LocalSteps(adopt=adopt, fragments=4).staleness_bound == 40


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("{steps: 0}", "steps: must be at least 1, got 0"),
        (
            "{optimizer: {name: AdamWW}}",
            "optimizer.name: must be one of AdamW, Adam, Adadelta, Adafactor, Adagrad, Adamax, "
            "ASGD, Muon, NAdam, RAdam, RMSprop, Rprop, SGD, got 'AdamWW'; did you mean 'AdamW'?",
        ),
        (
            "{optimizer: {name: LBFGS}}",
            "optimizer.name: must be one of AdamW, Adam, Adadelta, Adafactor, Adagrad, Adamax, "
            "ASGD, Muon, NAdam, RAdam, RMSprop, Rprop, SGD, got 'LBFGS'",
        ),
        (
            "{optimizer: {arguments: {weight_decy: 0.1}}}",
            "optimizer: arguments.weight_decy: unknown argument; did you mean 'weight_decay'?",
        ),
        (
            "{optimizer: {name: Rprop, arguments: {momentum: 0.1}}}",
            "optimizer: arguments.momentum: unknown argument; known here: lr, etas, step_sizes, "
            "foreach",
        ),
        (
            "{optimizer: {arguments: {lr: {}}}}",
            "optimizer: arguments.lr: must be a number from 0 to 1e+15, got {}",
        ),
        (
            "{optimizer: {arguments: {lr: -0.1}}}",
            "optimizer: arguments.lr: must be a number from 0 to 1e+15, got -0.1",
        ),
        (
            "{optimizer: {arguments: {lr: 1e300}}}",
            "optimizer: arguments.lr: must be a number from 0 to 1e+15, got 1e+300",
        ),
        (
            "{optimizer: {arguments: {betas: [0.9, 1.0]}}}",
            "optimizer: arguments.betas: must be two numbers from 0 to below 1, as [0.9, 0.99], "
            "got [0.9, 1.0]",
        ),
        (
            "{optimizer: {name: SGD, arguments: {nesterov: true}}}",
            "optimizer: arguments.nesterov: needs a momentum above 0, which is 0; set momentum",
        ),
        (
            "{optimizer: {arguments: {fused: true, foreach: true}}}",
            "optimizer: arguments.fused: must be false with foreach: true, got true",
        ),
        (
            "{optimizer: {name: Rprop, schedule: {cosine: {}}}}",
            "optimizer: schedule: must be constant without a warmup with Rprop, which takes lr",
        ),
        (
            "{optimizer: {name: Rprop, schedule: {warmup: {samples: 8}, constant: {}}}}",
            "optimizer: schedule: must be constant without a warmup with Rprop, which takes lr",
        ),
        (
            "{precision: bfloat16}",
            "precision: must be float32 or float64, got 'bfloat16', which only downpour has; for "
            "local steps use torch.autocast in Task.loss",
        ),
        ("{outer: {nesterov: {momentum: 1.0}}}", "outer.nesterov.momentum: must be less than 1"),
        ("{maximumNorm: 0}", "maximumNorm: must be more than 0, got 0"),
        (
            "{outer: {blend: {}}, maximumNorm: 2.0}",
            "maximumNorm: must be null with outer.blend, which pushes parameters, not differences, "
            "got 2; take outer.average",
        ),
        ("{quorum: 0}", "quorum: must be at least 1, got 0"),
        (
            "{quorum: 65}",
            "quorum: must be at most replicas.count, which is 1, got 65; take 1",
        ),
        (
            "{quorum: 1, outer: {blend: {}}}",
            "outer: must be average or nesterov with quorum: 1, since a mean of several replicas "
            "is applied, got blend; take nesterov",
        ),
        (
            "{quorum: 1, outer: {delayedNesterov: {}}}",
            "outer: must be average or nesterov with quorum: 1, since a mean of several replicas "
            "is applied, got delayedNesterov; take nesterov",
        ),
        (
            "{quorum: 1, outer: {average: {fullAge: 3}}}",
            "outer: must have no fullAge with quorum: 1, since a mean of several replicas has no "
            "age, got average.fullAge: 3; leave it out",
        ),
        (
            "{graceSeconds: 2}",
            "graceSeconds: must be null without a quorum, got 2; leave it out, or set quorum too",
        ),
        (
            "{precision: float64, pushAs: bfloat16}",
            "pushAs: must be float32 with precision: float64, of which bfloat16 would keep few "
            "digits; leave it out",
        ),
        (
            "{outer: {blend: {}}, pushAs: int8}",
            "pushAs: must be float32 with outer.blend, which pushes parameters, not differences, "
            "got int8; take outer.average",
        ),
        (
            "{precision: float64, fetchAs: bfloat16}",
            "fetchAs: must be float32 with precision: float64, of which bfloat16 would keep few "
            "digits; leave it out",
        ),
        (
            "{outer: {blend: {}}, fetchAs: bfloat16}",
            "fetchAs: must be float32 with outer.blend, which pushes parameters, not differences, "
            "got bfloat16; take outer.average",
        ),
        ("{fetchAs: int8}", "fetchAs: must be one of 'float32' or 'bfloat16', got 'int8' (text)"),
        ("{fragments: 0}", "fragments: must be at least 1, got 0"),
        ("{steps: 130, fragments: 65}", "fragments: must be at most 64, got 65"),
        (
            "{steps: 30, fragments: 4}",
            "fragments: must divide steps, which is 30, since one fragment is pushed after every "
            "steps / fragments of them, got 4; take steps: 32, or fragments: 2",
        ),
        (
            "{fragments: 4, maximumAge: 9}",
            "fragments: must be 1 with maximumAge, since the age of a push counts the pushes of "
            "all fragments, got 4 with maximumAge: 9; leave one of them out",
        ),
        (
            "{fragments: 4, outer: {average: {fullAge: 3}}}",
            "fragments: must be 1 with outer.average.fullAge, since the age of a push counts the "
            "pushes of all fragments, got 4 with outer.average.fullAge: 3; leave one of them out",
        ),
        ("{pushAs: int4}", "pushAs: must be one of 'float32', 'bfloat16' or 'int8', got 'int4'"),
        ("{adopt: merge}", "adopt: must be one of 'replace' or 'add', got 'merge' (text)"),
        (
            "{optimizer: {schedule: {warmup: {epochs: 3}, cosine: {epochs: 2}}}}",
            "optimizer.schedule.",
        ),
    ],
)
def test_a_mistake_is_refused_by_its_field(settings: str, expected: str) -> None:
    (line,) = said(settings)
    assert line.startswith(expected), line


@pytest.mark.parametrize(
    ("settings", "others", "expected"),
    [
        (
            "{}",
            ("spec.stop={samples: 8192}", "spec.replicas.count=4"),
            "steps: lets each of 4 replicas push 2 times in the run, so that they train almost "
            "alone; take fewer steps",
        ),
        ("{}", ("spec.stop={samples: 8192}",), None),
        ("{steps: 4}", ("spec.stop={samples: 8192}", "spec.replicas.count=4"), None),
        (
            "{outer: {nesterov: {}}}",
            ("spec.stop={steps: 640}",),
            "outer: has a velocity, which harms short runs: each replica pushes 20 times; take "
            "average, or fewer steps",
        ),
        ("{outer: {nesterov: {}}}", ("spec.stop={steps: 6400}",), None),
        (
            "{maximumAge: 3}",
            ("spec.replicas.count=4",),
            "maximumAge: is no more than the age of 3 at which 4 replicas of equal speed push, so "
            "that much work is done twice, got 3; take 12, or outer.average.fullAge",
        ),
        (
            "{maximumAge: 3}",
            ("spec.record=true",),
            "maximumAge: must be null with record: true, since a replay does not follow pushes "
            "that were refused, got 3",
        ),
        (
            "{seconds: 5.0}",
            ("spec.record=true",),
            "seconds: must be null with record: true, since a replay knows no seconds, got 5",
        ),
    ],
)
def test_what_fits_badly_together_is_said(
    settings: str, others: tuple[str, ...], expected: str | None
) -> None:
    found = findings(settings, *others)
    assert found == ([] if expected is None else [expected])


def test_the_optimizers_and_their_arguments_are_those_of_torch() -> None:
    classes = {
        name: found
        for name, found in vars(torch.optim).items()
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer)
    }
    assert classes.keys() - WANT_MORE == set(OptimizerName)
    for name, arguments in ARGUMENTS.items():
        _, *known = inspect.signature(classes[name]).parameters
        assert set(arguments) == set(known) - LEFT_OUT, name


def test_checkpoints_tell_outer_rules_from_update_rules() -> None:
    names = [rule.name for rule in (*UPDATE_RULES, *OUTER_RULES)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (
            [
                "spec.replicas.ranks=2",
                "spec.strategy={downpour: {optimizer: {sgd: {learningRate: 0.1}}}}",
            ],
            r"spec\.replicas\.ranks: must be 1 with downpour, got 2: .* or localSteps",
        ),
        (
            ["spec.replicas.ranks=2", "spec.strategy={sandblaster: {}}", "spec.batchSize=null"],
            r"spec\.replicas\.ranks: must be 1 with sandblaster, got 2",
        ),
        (
            [LOCAL, "spec.replicas.ranks=2", "spec.replicas.partitions=2"],
            r"spec\.replicas\.ranks: must be 1 with 2 partitions, got 2: .* steps: 1, quorum: N",
        ),
        (
            [LOCAL, "spec.replicas.ranks=9", "spec.batchSize=8"],
            r"spec\.batchSize: must be at least spec\.replicas\.ranks \(9\), .* got 8",
        ),
        (
            [LOCAL, "spec.replicas={ranks: 3, inner: fsdp2}", "spec.parameterServer.shards=2"],
            r"spec\.parameterServer\.shards: must be at least 3, got 2: .* 3 ranks .* fsdp2\)",
        ),
        (
            [LOCAL, "spec.replicas={ranks: 41, inner: fsdp2}", "spec.batchSize=64"],
            r"spec\.replicas\.ranks: must be at most 40 in a job, got 41: .* or inner: ddp",
        ),
        (
            [
                "spec.strategy={localSteps: {optimizer: {name: Muon}}}",
                "spec.replicas={ranks: 2, inner: fsdp2}",
            ],
            r"optimizer\.name: is Muon, .* 2 ranks \(spec\.replicas\.ranks, with inner: fsdp2\)",
        ),
        (
            [LOCAL, "spec.replicas={ranks: 2, inner: zero}"],
            r"inner: must be one of 'ddp' or 'fsdp2', got 'zero'",
        ),
        ([LOCAL, "spec.replicas.ranks=0"], r"spec\.replicas\.ranks"),
    ],
)
def test_ranks_are_refused_where_they_cannot_divide_a_batch(
    assignments: list[str], message: str
) -> None:
    with pytest.raises(InvalidManifest, match=message):
        a_job(*assignments)


def test_a_replica_has_as_many_processes_as_ranks() -> None:
    job = a_job(LOCAL, "spec.replicas={ranks: 3, inner: ddp}")
    assert (job.spec.replicas.processes, job.spec.replicas.parts, job.spec.shards) == (3, 1, 1)


@pytest.mark.parametrize("others", ["", ", partitions: 2"])
def test_how_ranks_train_changes_nothing_with_one_rank(others: str) -> None:
    alone, told = (
        a_job(LOCAL, f"spec.replicas={{ranks: 1{others}{inner}}}")
        for inner in ("", ", inner: fsdp2")
    )
    assert told.spec.replicas.parts == alone.spec.replicas.parts
    assert told.spec.replicas.parts_said == alone.spec.replicas.parts_said


def test_an_inner_of_one_rank_is_warned_of() -> None:
    value = yaml.safe_load(edited(SGD, "localSteps: {}"))
    value["spec"]["replicas"] = {"ranks": 1, "inner": "fsdp2"}
    (found,) = validation.validate(value).findings
    assert found.severity is Severity.WARNING
    assert found.message.startswith("fsdp2 means nothing with one rank, which trains alone; set")


def test_ranks_with_rows_of_their_own_have_shards_of_their_own() -> None:
    job = a_job(LOCAL, "spec.replicas={ranks: 3, inner: fsdp2}")
    assert (job.spec.replicas.processes, job.spec.replicas.parts, job.spec.shards) == (3, 3, 3)


@pytest.mark.parametrize(
    ("fragments", "said"),
    [(1, "nesterov with quorum"), (64, "nesterov with quorum and fragments: 64")],
)
def test_a_rule_of_a_checkpoint_is_named_as_manifests_name_it(fragments: int, said: str) -> None:
    name = merged_name(Nesterov(), fragments)
    assert in_manifests(name) == said
