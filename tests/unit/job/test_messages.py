"""One mistake, one line: where, which rule, which value, what to do."""

import pytest

from builders import update_rules
from builders.jobs import complaints, edited

DOWNPOUR = "spec.strategy.downpour"
OPTIMIZER = f"{DOWNPOUR}.optimizer"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("batchSize: 32", "batchSize: 0", "9: spec.batchSize: must be at least 1, got 0"),
        (
            "batchSize: 32",
            "batchSize: '3'",
            "9: spec.batchSize: must be a whole number, got '3' (text); write 3 without quotes",
        ),
        (
            "batchSize: 32",
            "batchSize: 1e3",
            "9: spec.batchSize: must be a whole number, got 1000.0 (number); write 1000",
        ),
        (
            "batchSize: 32",
            "batchSize: 1_000",
            "9: spec.batchSize: must be a whole number, got '1_000' (text); write 1000",
        ),
        (
            "batchSize: 32",
            "batchSize: 2.5",
            "9: spec.batchSize: must be a whole number, got 2.5 (number)",
        ),
        (
            "learningRate: 0.1",
            "learningRate: '0.1'",
            f"8: {OPTIMIZER}.sgd.learningRate: must be a number, got '0.1' (text); write 0.1 "
            "without quotes",
        ),
        (
            "batchSize: 32",
            "batchSize: true",
            "9: spec.batchSize: must be a whole number, got true (boolean)",
        ),
        (
            "batchSize: 32",
            "batchSize: 3.0",
            "9: spec.batchSize: must be a whole number, got 3.0 (number); write 3",
        ),
        (
            "batchSize: 32",
            "batchSize:",
            "9: spec.batchSize: required for downpour, for example 32",
        ),
        (
            "batchSize: 32",
            "batchSize: [1]",
            "9: spec.batchSize: must be a whole number, got a list",
        ),
        ("  batchSize: 32\n", "", "4: spec.batchSize: required for downpour, for example 32"),
        (
            "batchSize: 32",
            "batchSize: 32\n  batchSize: 33",
            "10: spec.batchSize: given twice, first in line 9; keep one of them",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  zzz: true",
            "10: spec.zzz: unknown field",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  replicas: {cuont: 3}",
            "10: spec.replicas.cuont: unknown field; did you mean 'count'?",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  parameterServer: {image: x}",
            "10: spec.parameterServer.image: unknown field; known here: shards, durability, "
            "threads, template",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  batch_size: 32",
            "10: spec.batch_size: unknown field; did you mean 'batchSize'?",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  replicas: 3",
            "10: spec.replicas: must be a mapping, got 3 (number)",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  replicas: {device: gpu}",
            "10: spec.replicas.device: must be one of 'auto', 'cpu' or 'cuda', got 'gpu' (text)",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  record: yes",
            "10: spec.record: must be true or false, got 'yes' (text)",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  seed: -1",
            "10: spec.seed: must be at least 0, got -1",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  seed: 9223372036854775808",
            "10: spec.seed: must be at most 9223372036854775807, got 9223372036854775808",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  portionSize: 33",
            "10: spec.portionSize: must be a multiple of batchSize (32), got 33",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  checkpoint: {uri: 's3://bucket/*'}",
            "10: spec.checkpoint.uri: must be a path, a file:// uri or one of an object store such "
            "as s3://bucket/prefix, without any of *?[]:, got 's3://bucket/*'",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  coordinator: {leaseSeconds: 2}",
            "10: spec.coordinator.leaseSeconds: must be more than twice heartbeatSeconds (1), "
            "got 2",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  coordinator: {memberTimeoutSeconds: 30}",
            "10: spec.coordinator.memberTimeoutSeconds: must be more than leaseSeconds (30), "
            "got 30",
        ),
        (
            "batchSize: 32",
            "batchSize: 32\n  failurePolicy: {restartBackoff: {initialSeconds: 60}}",
            "10: spec.failurePolicy.restartBackoff: maxSeconds must be at least initialSeconds "
            "(60.0), got 30.0",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0",
            f"8: {OPTIMIZER}.sgd.learningRate: must be more than 0, got 0",
        ),
        (
            "learningRate: 0.1",
            "learningRate: .inf",
            f"8: {OPTIMIZER}.sgd.learningRate: must be a finite number, got .inf",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 1e999",
            f"8: {OPTIMIZER}.sgd.learningRate: must be a finite number, got 1e999",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {steps: {atSamples: [3, x]}}",
            f"8: {OPTIMIZER}.sgd.schedule.steps.atSamples[1]: must be a whole number, "
            "got 'x' (text)",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {steps: {atSamples: [3, 3]}}",
            f"8: {OPTIMIZER}.sgd.schedule.steps: atSamples must increase, got 3 after 3",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 1e300",
            f"8: {OPTIMIZER}.sgd.learningRate: must be at most 1e+15, got 1e+300",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {steps: {atEpochs: [1, 2], factor: 1.0e+15}}",
            f"8: {OPTIMIZER}.sgd.schedule.steps: factor is 1e+15, 2 times, which no rate can be; "
            "take less",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {steps: {atSamples: []}}",
            f"8: {OPTIMIZER}.sgd.schedule.steps.atSamples: must not be empty, got a list",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {cosine: {samples: 5, warmupSamples: 5}}",
            f"8: {OPTIMIZER}.sgd.schedule.cosine: warmupSamples must be less than samples (5), "
            "got 5",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, schedule: {}",
            f"8: {OPTIMIZER}.sgd.schedule: must have exactly one of constant, linearWarmup, "
            "steps, cosine, linear, exponential, inverseRoot, warmupStableDecay, got none of them",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{sgd: {learningRate: 0.1}, adagrad: {learningRate: 0.1}}",
            f"8: {OPTIMIZER}: must have exactly one of {update_rules.NAMES}, got adagrad and sgd",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{momentum: {learningRate: 0.1, momentum: 1}}",
            f"8: {OPTIMIZER}.momentum.momentum: must be less than 1, got 1",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{adamw: {learningRate: 0.1, beta2: 1}}",
            f"8: {OPTIMIZER}.adamw.beta2: must be less than 1, got 1",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{adam: {learningRate: 0.1, epsilon: 0}}",
            f"8: {OPTIMIZER}.adam.epsilon: must be more than 0, got 0",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{rmsprop: {learningRate: 0.1, alpha: 0.0, centered: true}}",
            f"8: {OPTIMIZER}.rmsprop: alpha is 0, and of one gradient centered knows no variance; "
            "set alpha: 0.99",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{rmsprop: {learningRate: 0.1, momentum: 0.9}}",
            f"8: {OPTIMIZER}.rmsprop.momentum: unknown field; known here: learningRate, "
            "weightDecay, clipNorm, schedule, alpha, epsilon, centered",
        ),
        (
            "{sgd: {learningRate: 0.1}}",
            "{adamww: {learningRate: 0.1}}",
            f"8: {OPTIMIZER}.adamww: unknown field; did you mean 'adamw'?",
        ),
        (
            "learningRate: 0.1",
            "learningRate: 0.1, weightDecy: 0.1",
            f"8: {OPTIMIZER}.sgd.weightDecy: unknown field; did you mean 'weightDecay'?",
        ),
        (
            "    downpour:",
            "    downpour:\n      staleness: {predct: {}}",
            f"8: {DOWNPOUR}.staleness.predct: unknown field; did you mean 'predict'?",
        ),
        *(
            (
                "    downpour:",
                f"    downpour:\n      {field}: int8",
                f"8: {DOWNPOUR}.{field}: must be one of 'float32' or 'bfloat16', got 'int8' (text)",
            )
            for field in ("pushAs", "fetchAs")
        ),
        (
            "downpour:\n      optimizer: {sgd: {learningRate: 0.1}}",
            "{}",
            "6: spec.strategy: must have exactly one of downpour, localSteps, sandblaster, "
            "got none of them, for example "
            "{downpour: {optimizer: {adagrad: {learningRate: 0.05}}}}",
        ),
        (
            "    downpour:",
            "    sandblaster: {optimizer: {lbfgs: {}}}\n    downpour:",
            "6: spec.strategy: must have exactly one of downpour, localSteps, sandblaster, "
            "got downpour and sandblaster",
        ),
        (
            "    downpour:",
            "    downpour:\n      maxInFlight: 17",
            f"8: {DOWNPOUR}.maxInFlight: must be at most 16, got 17",
        ),
        (
            "{epochs: 1}",
            "{}",
            "10: spec.stop: must say when to stop: give epochs, steps, iterations, "
            "samples, seconds, targetMetric or patience, for example {epochs: 10}",
        ),
        (
            "{epochs: 1}",
            "{targetMetric: {name: accuracy}}",
            "10: spec.stop.targetMetric: must have exactly one of atLeast, atMost, "
            "got none of them",
        ),
        (
            "{epochs: 1}",
            "{targetMetric: {name: '', atLeast: 1}}",
            "10: spec.stop.targetMetric.name: must not be empty, got '' (text)",
        ),
        (
            "{epochs: 1}",
            "{epochs: 1, targetMetric: {name: a, atLeast: 1}}\n  evaluation: null",
            "10: spec.stop.targetMetric: needs an evaluation during training: set "
            "spec.evaluation.everyEpochs or everySeconds",
        ),
        (
            "v1alpha1",
            "v2",
            "1: apiVersion: must be 'disttrain.dev/v1alpha1', got 'disttrain.dev/v2' (text)",
        ),
        ("kind: DistTrainJob", "kind: Job", "2: kind: must be 'DistTrainJob', got 'Job' (text)"),
        (
            "digits:Digits",
            "digits.Digits",
            "5: spec.task.entrypoint: must be 'module:Class', for example digits:Digits, "
            "got 'digits.Digits'",
        ),
        (
            "name: digits",
            "name: Digits_1",
            "3: metadata.name: must be at most 40 characters a-z, 0-9 and '-', begin with a "
            "letter and end with a letter or digit, got 'Digits_1'",
        ),
        (
            "name: digits",
            "name: digits, labels: {a.b/c: 3}",
            "3: metadata.labels['a.b/c']: must be text, got 3 (number)",
        ),
        (
            "name: digits",
            "name: digits, labels: {3: a}",
            "3: metadata.labels['3']: a field's name must be text; put it in quotes",
        ),
        (
            "name: digits",
            "name: !!python/name:os.system digits",
            "3: metadata.name: YAML tags are not supported, got "
            "tag:yaml.org,2002:python/name:os.system",
        ),
        (
            "digits:Digits}",
            "digits:Digits, arguments: {<<: {a: 1}}}",
            "5: spec.task.arguments.<<: YAML merge keys are not supported; write the fields out",
        ),
    ],
)
def test_one_mistake_gives_one_finding(old: str, new: str, expected: str) -> None:
    assert complaints(edited(old, new)) == [f"job.yaml:{expected}"]


def test_a_strategy_that_is_misspelt_is_named_alone() -> None:
    text = edited("    downpour:\n      optimizer: {sgd: {learningRate: 0.1}}", "    downpuor: {}")
    text = text.replace("  batchSize: 32\n", "")
    words = "spec.strategy.downpuor: unknown field; did you mean 'downpour'?"
    assert complaints(text) == [f"job.yaml:7: {words}"]


@pytest.mark.parametrize(
    "strategy", ["{}", "{downpuor: {}}", "{downpour: null}", "{sandblaster: 3}"]
)
def test_a_rule_is_asked_of_no_strategy_that_is_wrong(strategy: str) -> None:
    text = edited("    downpour:\n      optimizer: {sgd: {learningRate: 0.1}}", f"    {strategy}")
    text = text.replace("{epochs: 1}", "{targetMetric: {name: loss, atMost: 0.1}}")

    assert "spec.strategy" in "\n".join(complaints(text))
